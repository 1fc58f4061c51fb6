"""Sampling from processed logits, recording the support, and scoring the same token again."""

import math
from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from truing.errors import InvalidValueError, NonFiniteError
from truing.ops.logprobs import token_logprobs
from truing.ops.sampling import draw, processed_logits, support_ids, support_mask
from truing.types.sampling_params import SamplingParams

INF = math.inf
EVERYTHING = SamplingParams(0.8, 20, 0.9, 0.02, 0.4, 0.3, 1.3, 3, 16, (7, 11))


def nothing(rows):
    return torch.zeros(rows, 0, dtype=torch.int64)


def logits(rows=6, vocab=64, seed=0, dtype=torch.float32):
    return 3 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def uniforms(count, seed=0):
    return torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_replay_identity_with_every_rule_on():
    """Eight tokens drawn one at a time, four rows at once; then scored together, as the trainer does."""
    rows, steps, vocab = 4, 8, 64
    raw, ids_NH, drawn, supports, raws, histories = logits(rows * steps, vocab), nothing(rows), [], [], [], []
    for step in range(steps):
        raw_NV = raw[step * rows : (step + 1) * rows]
        scores_NV = processed_logits(raw_NV, EVERYTHING, ids_NH)
        ids_N = draw(scores_NV, uniforms(rows, step))
        drawn.append(token_logprobs(scores_NV, ids_N))
        supports += [support_ids(row.isfinite()) for row in scores_NV]
        raws.append(raw_NV)
        histories.append(torch.cat([ids_NH, torch.full((rows, steps - step), -1)], dim=1))
        ids_NH = torch.cat([ids_NH, ids_N[:, None]], dim=1)
    assert max(map(len, supports)) <= 20, "truncation was at work"
    replayed_NV = processed_logits(
        torch.cat(raws), EVERYTHING, torch.cat(histories), support_NV=support_mask(supports, vocab)
    )
    assert torch.equal(token_logprobs(replayed_NV, ids_NH.T.reshape(-1)), torch.cat(drawn))
    assert not torch.isin(ids_NH[:, :3], torch.tensor(EVERYTHING.stop_ids)).any()


def test_draw_hand_worked():
    # cumulative ¼, ¼ (id 1 cannot be sampled), 1: u < ¼ is id 0, the rest id 2
    logits_NV = torch.tensor([[0.25, 0.0, 0.75]]).log().expand(4, 3)
    uniform_N = torch.tensor([0.0, 0.2499, 0.2501, 1 - 2**-53], dtype=torch.float64)
    assert draw(logits_NV, uniform_N).tolist() == [0, 0, 2, 2]


def test_draw_never_takes_what_cannot_be_drawn():
    ends_NV = torch.tensor([[-INF, -INF, 0.3, -INF, 0.3, -INF]] * 2)
    assert draw(ends_NV, torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)).tolist() == [2, 4]


@pytest.mark.parametrize("ends", [(0, 699), (255, 256), (511, 512), (300, 600)])
def test_draw_takes_the_ends_of_blocks_alone(ends):
    """The only two ids that can be drawn, at the very ends of the uniform numbers, and half way between."""
    logits_NV = torch.full((4, 700), -INF)
    logits_NV[:, ends] = 2.0
    uniform_N = torch.tensor([0.0, 0.5 - 2**-53, 0.5, 1 - 2**-53], dtype=torch.float64)
    assert draw(logits_NV, uniform_N).tolist() == [ends[0], ends[0], ends[1], ends[1]]


@given(st.sampled_from([1, 9, 256, 700]), st.integers(0, 99), st.floats(0, 0.999), st.floats(-50, 50))
def test_draw_against_a_plain_loop_and_under_shift(vocab, seed, uniform, shift):
    logits_NV = logits(1, vocab, seed, torch.float64)
    uniform_N = torch.tensor([uniform], dtype=torch.float64)
    cumulative = accumulate(logits_NV.softmax(-1)[0].tolist())
    expected = next(token for token, mass in enumerate(cumulative) if mass > uniform)
    assert draw(logits_NV, uniform_N).item() == expected
    assert draw(logits_NV + shift, uniform_N).item() == expected


def test_draw_follows_the_distribution():
    count, probabilities = 20_000, torch.tensor([0.5, 0.2, 0.15, 0.1, 0.05])
    ids_N = draw(probabilities.log().expand(count, 5), uniforms(count))
    seen = torch.bincount(ids_N, minlength=5).numpy()
    assert (
        chisquare(seen, count * probabilities.double().numpy() / probabilities.double().sum().item()).pvalue
        > 1e-3
    )


def test_draw_refuses():
    for wrong in (
        torch.tensor([1.0], dtype=torch.float64),
        torch.tensor([-0.1], dtype=torch.float64),
        torch.rand(1),
    ):
        with pytest.raises(InvalidValueError, match=r"\[0, 1\)"):
            draw(logits(1), wrong)
    with pytest.raises(NonFiniteError, match="not a distribution"):
        draw(torch.tensor([[0.0, math.nan]]), uniforms(1))


def test_support_mask_hand_worked():
    got_NV = support_mask([torch.tensor([2]), torch.tensor([], dtype=torch.int32), torch.tensor([-3])], 3)
    assert got_NV.tolist() == [[False, False, True], [True, True, True], [True, True, False]]
    assert support_mask([], 3).shape == (0, 3)
    with pytest.raises(InvalidValueError, match="supports holds an id outside"):
        support_mask([torch.tensor([3])], 3)
    with pytest.raises(InvalidValueError, match="supports holds an id outside"):
        support_mask([torch.tensor([-4])], 3)


def test_support_ids_hand_worked():
    packed = [support_ids(torch.tensor(mask) > 0).tolist() for mask in ([1, 0, 0], [1, 1, 0], [1, 1, 1])]
    assert packed == [[0], [-3], []]


@given(st.lists(st.lists(st.booleans(), min_size=7, max_size=7).filter(any), max_size=5))
def test_support_ids_unpack_to_the_mask_and_are_never_more_than_half(masks):
    packed = [support_ids(torch.tensor(mask)) for mask in masks]
    assert support_mask(packed, 7).tolist() == masks
    assert all(len(ids) <= 3 for ids in packed)


@given(st.lists(st.sets(st.integers(0, 6)), max_size=5))
def test_support_mask_against_a_plain_loop(supports):
    got_NV = support_mask([torch.tensor(sorted(ids), dtype=torch.int32) for ids in supports], 7)
    assert got_NV.tolist() == [[not ids or token in ids for token in range(7)] for ids in supports]
