import math
import statistics

import polgrad
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truing.errors import InvalidValueError
from truing.ops.advantages import group_advantages, leave_one_out, turn_returns

SCALES = ("group", "batch", "none")
GROUP = st.lists(st.floats(-5, 5), min_size=2, max_size=6)
GROUPS = st.lists(GROUP, min_size=1, max_size=4)


def stacked(groups):
    rewards = [reward for group in groups for reward in group]
    index = [label for label, group in enumerate(groups) for _ in group]
    return torch.tensor(rewards, dtype=torch.float64), torch.tensor(index)


def slow(groups, scale, eps):
    """One group after the other, with the standard library's statistics."""
    everything = statistics.stdev(reward for group in groups for reward in group)
    for group in groups:
        mean = statistics.fmean(group)
        divisor = {"group": statistics.stdev(group) + eps, "batch": everything + eps, "none": 1.0}[scale]
        yield from ((reward - mean) / divisor if len(set(group)) > 1 else 0.0 for reward in group)


def test_group_advantages_hand_worked():
    # group 7: rewards 1, 0, 0, mean 1/3, deviations ⅔ −⅓ −⅓, variance (4 + 1 + 1)/9 / 2 = 1/3
    # group 3: rewards 2, 4, mean 3, deviations −1 1, variance 2
    rewards_R, group_R = torch.tensor([1.0, 2.0, 0.0, 0.0, 4.0]), torch.tensor([7, 3, 7, 7, 3])
    deviations_R = torch.tensor([2 / 3, -1.0, -1 / 3, -1 / 3, 1.0])
    divisor_R = torch.tensor([math.sqrt(1 / 3), math.sqrt(2)])[[0, 1, 0, 0, 1]]
    torch.testing.assert_close(group_advantages(rewards_R, group_R, "none"), deviations_R)
    torch.testing.assert_close(
        group_advantages(rewards_R, group_R, "group", eps=0.0), deviations_R / divisor_R
    )
    # the whole batch 1 2 0 0 4: mean 1.4, squares .16 + .36 + 1.96 + 1.96 + 6.76 = 11.2, variance 2.8
    expected_R = deviations_R / (math.sqrt(2.8) + 0.5)
    torch.testing.assert_close(group_advantages(rewards_R, group_R, "batch", eps=0.5), expected_R)


def test_leave_one_out_hand_worked():
    # 1 − mean(0, 3) = −.5;  0 − mean(1, 3) = −2;  3 − mean(1, 0) = 2.5
    got_R = leave_one_out(torch.tensor([1.0, 0.0, 3.0]), torch.tensor([0, 0, 0]))
    assert got_R.tolist() == [-0.5, -2.0, 2.5]


@given(GROUPS, st.sampled_from(SCALES))
def test_against_a_plain_loop(groups, scale):
    rewards_R, group_R = stacked(groups)
    got_R = group_advantages(rewards_R, group_R, scale, eps=1e-2)
    assert got_R.tolist() == pytest.approx(list(slow(groups, scale, 1e-2)), abs=1e-9)
    loops = [r - (sum(group) - r) / (len(group) - 1) for group in groups for r in group]
    assert leave_one_out(rewards_R, group_R).tolist() == pytest.approx(loops, abs=1e-9)


@pytest.mark.parametrize("label", [0, 2])
@pytest.mark.parametrize("reward", [0.1, 1 / 3, -7.3, 0.0])
def test_equal_rewards_are_exactly_zero(reward, label):
    rewards_R = torch.tensor([0.0, 1.0] + [reward] * 7)
    group_R = torch.tensor([1] * 2 + [label] * 7)
    for scale in SCALES:
        assert group_advantages(rewards_R, group_R, scale, eps=0.0)[2:].tolist() == [0.0] * 7
    assert leave_one_out(rewards_R, group_R)[2:].tolist() == [0.0] * 7


@given(GROUP)
def test_bound_of_the_group_scale(rewards):
    size = len(rewards)
    rewards_R, group_R = stacked([rewards])
    assert group_advantages(rewards_R, group_R, "group").abs().max() <= (size - 1) / math.sqrt(size) + 1e-12


def test_bound_is_reached_by_one_success():
    # one 1 among G − 1 zeros: deviation (G − 1)/G over s = 1/√G
    got_R = group_advantages(torch.eye(8)[0].double(), torch.zeros(8, dtype=torch.int64), "group", eps=0.0)
    assert got_R[0].item() == pytest.approx(7 / math.sqrt(8))


@given(GROUPS, st.floats(-10, 10), st.randoms())
def test_shift_and_order_change_nothing(groups, shift, random):
    rewards_R, group_R = stacked(groups)
    order = list(range(len(rewards_R)))
    random.shuffle(order)
    for formula in (lambda r, g: group_advantages(r, g, "group", eps=0.1), leave_one_out):
        expected_R = formula(rewards_R, group_R)[order]
        got_R = formula(rewards_R[order] + shift, 5 - group_R[order])
        torch.testing.assert_close(got_R, expected_R, atol=1e-9, rtol=0)


def test_gradient():
    # ∂A_i/∂r_j = [i = j] − 1/G for "none", and G/(G − 1) times that when one is left out
    rewards_R = torch.tensor([1.0, 0.0, 3.0], dtype=torch.float64, requires_grad=True)
    group_R = torch.zeros(3, dtype=torch.int64)
    (gradient_R,) = torch.autograd.grad(group_advantages(rewards_R, group_R, "none")[0], rewards_R)
    assert gradient_R.tolist() == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    (gradient_R,) = torch.autograd.grad(leave_one_out(rewards_R, group_R)[0], rewards_R)
    assert gradient_R.tolist() == pytest.approx([1.0, -0.5, -0.5])
    for scale in SCALES:
        assert torch.autograd.gradcheck(lambda r, s=scale: group_advantages(r, group_R, s), rewards_R)


@pytest.mark.parametrize("formula", [lambda r, g: group_advantages(r, g, "none"), leave_one_out])
def test_edge_cases(formula):
    empty_R = formula(torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    assert empty_R.shape == (0,)
    with pytest.raises(InvalidValueError, match="group 9 of one rollout"):
        formula(torch.tensor([1.0, 0.0, 2.0]), torch.tensor([3, 3, 9]))
    with pytest.raises(InvalidValueError, match="finite"):
        formula(torch.tensor([1.0, float("nan")]), torch.tensor([0, 0]))
    assert formula(torch.tensor([1.0, 0.0]), torch.tensor([0, 0])).dtype == torch.float32


def test_a_misspelt_scale_is_refused():
    with pytest.raises(InvalidValueError, match="scale is none of its choices"):
        group_advantages(torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), "Group")


def test_empty_batch_scale():
    assert group_advantages(torch.zeros(0), torch.zeros(0, dtype=torch.int64), "batch").shape == (0,)


def test_agrees_with_polgrad():
    rewards_R, group_R = torch.randn(12, dtype=torch.float64), torch.arange(12) % 3
    for ours, theirs in (("group", "std"), ("none", "none")):
        config = polgrad.GroupNormConfig(scale=theirs, eps=1e-4)
        expected_R = polgrad.grpo_advantages(rewards_R, group_R, config)
        torch.testing.assert_close(group_advantages(rewards_R, group_R, ours), expected_R)
    torch.testing.assert_close(leave_one_out(rewards_R, group_R), polgrad.rloo_advantages(rewards_R, group_R))


def test_turn_returns_hand_worked():
    returns = turn_returns(torch.tensor([1.5, 0.0]), torch.tensor([[0.25, 0.25, 0.0], [1.0, 0.0, -1.0]]))
    assert returns.tolist() == [[1.5, 1.25, 1.0], [0.0, -1.0, -1.0]]


def test_turn_returns_of_no_turns():
    assert turn_returns(torch.tensor([1.0]), torch.empty(1, 0)).shape == (1, 0)
