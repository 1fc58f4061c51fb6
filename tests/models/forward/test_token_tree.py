import torch
from hypothesis import given
from hypothesis import strategies as st

from truing.models.forward.token_tree import Segment, build_tree, partition

SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=12)


def tree_of(*words):
    return build_tree([torch.tensor([ord(letter) for letter in word]) for word in words])


def test_what_is_shared_is_laid_out_once():
    tree = tree_of("abcd", "abef", "abc")
    assert "".join(map(chr, tree.keys_L.tolist())) == "abcdef"
    assert tree.position_ids_L.tolist() == [0, 1, 2, 3, 2, 3]
    assert tree.ends_L.tolist() == [6, 6, 4, 4, 6, 6]
    assert [place.tolist() for place in tree.token_indices] == [[0, 1, 2, 3], [0, 1, 4, 5], [0, 1, 2]]
    assert tree.segments() == [Segment(0, 2, 6), Segment(2, 3, 4), Segment(3, 4, 4), Segment(4, 6, 6)]


def test_samples_with_nothing_in_common_are_trees_of_their_own():
    tree = tree_of("ba", "c", "cd", "a")
    assert tree.segments() == [Segment(0, 1, 1), Segment(1, 3, 3), Segment(3, 4, 5), Segment(4, 5, 5)]
    assert [place.tolist() for place in tree.token_indices] == [[1, 2], [3], [3, 4], [0]]


@given(SEQUENCES)
def test_each_token_sees_its_own_prefix_and_nothing_else(sequences):
    tree = build_tree([torch.tensor(ids) for ids in sequences])
    prefixes = {tuple(ids[: t + 1]) for ids in sequences for t in range(len(ids))}
    assert len(tree.keys_L) == len(prefixes)  # each computed once
    k = torch.arange(len(tree.keys_L))
    sees_LL = (k[None, :] <= k[:, None]) & (k[:, None] < tree.ends_L[None, :])
    for ids, place in zip(sequences, tree.token_indices, strict=True):
        assert tree.keys_L[place].tolist() == ids
        assert tree.position_ids_L[place].tolist() == list(range(len(ids)))
        for t in range(len(ids)):
            assert sees_LL[place[t]].nonzero()[:, 0].tolist() == place[: t + 1].tolist()


@given(SEQUENCES)
def test_segments_say_the_same_as_ends_and_no_sequence_ends_within_one(sequences):
    tree = build_tree([torch.tensor(ids) for ids in sequences])
    segments = tree.segments()
    assert [k for start, end, _ in segments for k in range(start, end)] == list(range(len(tree.ends_L)))
    for start, end, last in segments:
        assert set(tree.ends_L[start:end].tolist()) == {last}
        assert tree.position_ids_L[start:end].diff().eq(1).all()
    assert {int(place[-1]) + 1 for place in tree.token_indices} <= {end for _, end, _ in segments}


@given(SEQUENCES, st.integers(1, 20))
def test_parts_hold_every_sequence_once_and_stay_in_budget(sequences, budget):
    tensors = [torch.tensor(ids) for ids in sequences]
    parts = partition(tensors, budget)
    assert sorted(b for part in parts for b in part.members) == list(range(len(sequences)))
    for members, tokens in parts:
        assert len(build_tree([tensors[b] for b in members]).keys_L) == tokens
        assert tokens <= budget or len(members) == 1
