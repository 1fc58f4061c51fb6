import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truing.errors import InvalidValueError
from truing.ops.losses import clipped_surrogate
from truing.ops.ratios import (
    clip_mask,
    importance_log_ratio,
    importance_ratio,
    log_ratio,
    sequence_ratio,
    token_ratio,
    within_bounds,
)

NAN = float("nan")
ROW = st.lists(st.tuples(st.floats(-3, 3), st.booleans()), min_size=1, max_size=10)


def tensors(row):
    return (
        torch.tensor([[x for x, _ in row]], dtype=torch.float64),
        torch.tensor([[m for _, m in row]]),
    )


def test_log_and_token_ratio_hand_worked():
    # probabilities ½ and ⅛ now, ¼ and ¼ then: ratios 2 and ½
    ratio_BT = token_ratio(log_ratio(torch.tensor([[0.5, 0.125]]).log(), torch.tensor([[0.25, 0.25]]).log()))
    torch.testing.assert_close(ratio_BT, torch.tensor([[2.0, 0.5]]))


def test_sequence_ratio_hand_worked():
    # row 0: tokens 0 and 2 count, mean of log 2 and log 8 is log 4; row 1: nothing counts
    log_ratio_BT = torch.tensor([[2.0, 99.0, 8.0], [5.0, 5.0, 5.0]]).log()
    mask_BT = torch.tensor([[True, False, True], [False, False, False]])
    torch.testing.assert_close(sequence_ratio(log_ratio_BT, mask_BT), torch.tensor([[4.0] * 3, [1.0] * 3]))


def test_sequence_ratio_gradient_reaches_every_masked_token():
    # s = exp(mean): ∂s/∂x_t = s / L for the L masked tokens, and each row's T copies add up
    log_ratio_BT = torch.tensor([[math.log(2), NAN, math.log(8)]], dtype=torch.float64, requires_grad=True)
    mask_BT = torch.tensor([[True, False, True]])
    sequence_ratio(log_ratio_BT, mask_BT)[0, 0].backward()
    assert log_ratio_BT.grad.tolist() == [[pytest.approx(2.0), 0.0, pytest.approx(2.0)]]
    x_BT = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: sequence_ratio(x, torch.ones(2, 3, dtype=torch.bool)), x_BT)


def test_token_ratio_gradient_on_policy_is_that_of_the_logprob():
    logprob_BT = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    old_BT = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    token_ratio(log_ratio(logprob_BT, old_BT)).sum().backward()
    assert logprob_BT.grad.tolist() == [[1.0, 1.0]]
    assert old_BT.grad is None, "the policy that sampled is not trained"


@given(ROW)
def test_against_a_plain_loop(row):
    log_ratio_BT, mask_BT = tensors(row)
    inside = [x for x, m in row if m]
    sequence = math.exp(sum(inside) / len(inside)) if inside else 1.0
    assert sequence_ratio(log_ratio_BT, mask_BT).tolist() == [pytest.approx([sequence] * len(row))]
    assert token_ratio(log_ratio_BT).tolist() == [pytest.approx([math.exp(x) for x, _ in row])]
    tokens = [math.exp(x) if m else 1.0 for x, m in row]
    assert importance_ratio(log_ratio_BT, mask_BT, "token").tolist() == [pytest.approx(tokens)]
    for level in ("token", "sequence"):
        logs_BT = importance_log_ratio(log_ratio_BT, mask_BT, level)
        torch.testing.assert_close(logs_BT.exp(), importance_ratio(log_ratio_BT, mask_BT, level))
    assert importance_ratio(log_ratio_BT, mask_BT, "sequence").tolist() == [
        pytest.approx([sequence] * len(row))
    ]


@given(ROW, st.integers(1, 4))
def test_padding_changes_nothing(row, pads):
    longer = row + [(NAN, False)] * pads
    for level in ("token", "sequence"):
        expected_BT = importance_ratio(*tensors(row), level)
        torch.testing.assert_close(importance_ratio(*tensors(longer), level)[:, : len(row)], expected_BT)


@given(st.floats(-2, 2), ROW)
def test_scaling_the_policy_scales_the_ratio(shift, row):
    log_ratio_BT, mask_BT = tensors([(x, True) for x, _ in row])
    for level in ("token", "sequence"):
        moved_BT = importance_ratio(log_ratio_BT + shift, mask_BT, level)
        torch.testing.assert_close(moved_BT, importance_ratio(log_ratio_BT, mask_BT, level) * math.exp(shift))


def test_a_misspelt_level_is_refused():
    with pytest.raises(InvalidValueError, match="level is none of its choices"):
        importance_ratio(torch.zeros(1, 1), torch.ones(1, 1).bool(), "tokens")


def test_clip_mask_hand_worked():
    # band [0.8, 1.28]; clipped only above with A > 0 or below with A < 0; the edges still learn
    ratio = torch.tensor([1.3, 1.3, 0.7, 0.7, 1.0, 1.3, NAN], dtype=torch.float64)
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    assert clip_mask(ratio, advantage, 0.2, 0.28).tolist() == [True, False, False, True, False, False, False]
    edges = torch.tensor([1 + 0.28, 1 - 0.2], dtype=torch.float64)
    assert clip_mask(edges, torch.tensor([1.0, -1.0], dtype=torch.float64), 0.2, 0.28).tolist() == [
        False,
        False,
    ]


@given(st.lists(st.tuples(st.floats(0.01, 3), st.integers(-2, 2)), min_size=1, max_size=20))
def test_clip_mask_is_where_the_surrogate_has_no_gradient(pairs):
    ratio = torch.tensor([r for r, _ in pairs], dtype=torch.float64, requires_grad=True)
    advantage = torch.tensor([a for _, a in pairs], dtype=torch.float64)
    clipped_surrogate(ratio, advantage, 0.2, 0.3).sum().backward()
    learns = [a != 0 and not (r > 1.3 if a > 0 else r < 0.8) for r, a in pairs]
    assert (ratio.grad != 0).tolist() == learns
    assert (clip_mask(ratio, advantage, 0.2, 0.3) | (advantage == 0)).tolist() == [
        not learn for learn in learns
    ]


def test_within_bounds_hand_worked():
    log_ratio = torch.tensor([0.5, 0.51, 1.0, 1.99, 2.0, 2.01, NAN]).log()
    assert within_bounds(log_ratio, 0.505, 2.005).tolist() == [False, True, True, True, True, False, False]
    assert within_bounds(log_ratio, None, 2.005).tolist() == [True, True, True, True, True, False, False]
    assert within_bounds(log_ratio, 0.505, None).tolist() == [False, True, True, True, True, True, False]
    assert within_bounds(log_ratio, None, None).all()
    assert within_bounds(log_ratio[:0], 0.5, 2.0).tolist() == []


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9), st.floats(0.05, 0.95), st.floats(1.05, 20))
def test_within_bounds_against_plain_arithmetic(logs, low, high):
    result = within_bounds(torch.tensor(logs, dtype=torch.float64), low, high).tolist()
    assert result == [math.log(low) <= each <= math.log(high) for each in logs]
