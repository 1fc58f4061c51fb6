import torch
from hypothesis import given
from hypothesis import strategies as st
from samples import sample

from truing.models.pack import pack, split, visible
from truing.training.collate import collate

PROMPT = [1, 2, 3]


def test_a_shared_prompt_is_laid_out_once():
    batch = collate([sample(PROMPT, [4, 5, 6]), sample(PROMPT, [7, 8])])
    packed = pack(batch, batch.policy_mask)
    # the last token of a branch predicts nothing, so it is not computed
    assert packed.token_ids.tolist() == [[1, 2, 3, 4, 5, 7]]
    assert packed.position_ids.tolist() == [[0, 1, 2, 3, 4, 3]]
    # first answer: 4 after 3 (column 2), 5 after 4, 6 after 5; second: 7 after 3 (column 2), 8 after 7
    assert list(
        zip(packed.sample_N.tolist(), packed.token_N.tolist(), packed.col_N.tolist(), strict=True)
    ) == [
        (0, 3, 2),
        (0, 4, 3),
        (0, 5, 4),
        (1, 3, 2),
        (1, 4, 5),
    ]


def test_siblings_do_not_see_each_other():
    # prompt a b, answers c d and e: c sees a b c, d sees a b c d, e sees a b e
    mask = visible(torch.tensor([[0, 0, 1, 1, 2]]))[0, 0].int()
    assert mask.tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],
    ]


def test_prompts_of_equal_length_stay_apart():
    batch = collate([sample([1, 2], [4, 5]), sample([1, 3], [4, 5])])
    assert pack(batch, batch.policy_mask).token_ids.tolist() == [[1, 2, 4], [1, 3, 4]]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 12)), min_size=1, max_size=12),
    st.integers(1, 60),
)
def test_split_keeps_every_sample_once_and_stays_in_budget(shapes, budget):
    samples = [sample(list(range(5 + p)), [9] * length, name=str(i)) for i, (p, length) in enumerate(shapes)]
    parts = split(samples, budget)
    assert sorted(s.sample_id for part in parts for s in part) == sorted(s.sample_id for s in samples)
    for part in parts:
        packed = pack(collate(part), collate(part).policy_mask)
        assert packed.token_ids.numel() <= budget or len(part) == 1
