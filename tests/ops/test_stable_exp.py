"""Ratios and KL that no float32 can hold, against the same in numbers of any size (mpmath)."""

import math
from dataclasses import replace

import mpmath
import pytest
import torch

from truing.ops.correction import correction_weights
from truing.ops.losses import OBJECTIVES, kl_loss, policy_loss
from truing.ops.stable_exp import MAX_LOG, excess, scale_gradient_by_exp, times_exp

FAR = [
    -2000.0,
    -300.0,
    -120.0,
    -90.0,
    -1.0,
    0.0,
    0.1,
    1.0,
    79.0,
    81.0,
    88.0,
    89.0,
    95.0,
    120.0,
    300.0,
    2000.0,
]
ADVANTAGES = [-1000.0, -2.0, -0.1, -1e-20, 0.0, 1e-20, 0.1, 2.0]


def in_dtype(number, dtype=torch.float32):
    """What a dtype makes of a number of any size."""
    largest = torch.finfo(dtype).max
    return math.copysign(math.inf, number) if abs(number) > largest else float(number)


def close(got, wanted, dtype=torch.float32):
    wanted = in_dtype(wanted, dtype)
    # x itself has 24 bits: e^x is no nearer than x is
    return got == wanted if math.isinf(wanted) else got == pytest.approx(wanted, rel=1e-4, abs=1e-38)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("log", [x for x in FAR if abs(x) < 1600])
def test_a_product_is_right_whichever_factor_is_too_large(log, dtype):
    for factor in ADVANTAGES:
        got = times_exp(torch.tensor([factor], dtype=dtype), torch.tensor([log], dtype=dtype)).item()
        assert close(got, mpmath.mpf(factor) * mpmath.exp(log), dtype), (factor, log, got)


def test_what_is_of_ordinary_size_has_no_excess_and_is_not_touched():
    x = torch.tensor([-1000.0, 0.0, MAX_LOG, MAX_LOG + 3, math.nan])
    assert torch.allclose(excess(x), torch.tensor([0.0, 0.0, 0.0, 3.0, math.nan]), equal_nan=True)
    factor = torch.randn(100)
    assert torch.equal(times_exp(factor, torch.zeros(100)), factor)


def test_a_steeper_number_is_itself_and_its_slope_is_right_however_large():
    x = torch.tensor([3.0, 3.0, 0.0, 1e-20], requires_grad=True)
    y = scale_gradient_by_exp(x, torch.tensor([0.0, 2.0, 300.0, 110.0]))
    assert torch.equal(y, x)
    (y**2 / 2).sum().backward()
    wanted = [3.0, 3 * math.exp(2), 0.0, 1e-20 * math.exp(110)]
    assert x.grad.tolist() == pytest.approx(wanted, rel=1e-4)


def one(log, advantage, objective, weight=None):
    """Loss and gradient of a row of one token that moved by so many nats."""
    logprob = torch.tensor([[-1.0]], requires_grad=True)
    old, mask = torch.tensor([[-1.0 - log]]), torch.tensor([[True]])
    weight = None if weight is None else torch.tensor([[weight]])
    options = {"objective": OBJECTIVES[objective], "denominator": 1.0, "weight_BT": weight}
    loss = policy_loss(logprob, old, torch.tensor([[advantage]]), mask, **options)
    loss.backward()
    return loss.item(), logprob.grad.item()


@pytest.mark.parametrize("objective", ["grpo", "dr_grpo", "dapo", "gspo", "ppo"])
@pytest.mark.parametrize("log", FAR)
def test_a_clipped_surrogate_is_right_however_far_a_token_moved(log, objective):
    setup = OBJECTIVES[objective]
    old = float(torch.tensor(-1.0 - log))
    ratio = mpmath.exp(-1.0 - old)
    for advantage in map(float, torch.tensor(ADVANTAGES)):
        loss, slope = one(log, advantage, objective)
        band = min(max(ratio, mpmath.mpf(1 - setup.clip_low)), mpmath.mpf(1 + setup.clip_high))
        clipped = band * advantage < ratio * advantage
        assert close(loss, -(band if clipped else ratio) * advantage), (advantage, loss)
        assert close(slope, mpmath.mpf(0) if clipped else -ratio * advantage), (advantage, slope)


@pytest.mark.parametrize("objective", ["cispo", "reinforce"])
@pytest.mark.parametrize("log", FAR)
def test_what_reads_a_capped_ratio_or_none_has_no_nan(log, objective):
    for advantage in ADVANTAGES:
        cap = OBJECTIVES[objective].max_ratio
        factor = min(mpmath.exp(log), mpmath.mpf(cap)) if objective == "cispo" else mpmath.mpf(1)
        loss, slope = one(log, advantage, objective)
        assert close(loss, factor * advantage)
        assert close(slope, -factor * advantage)


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
@pytest.mark.parametrize("log", [89.0, 120.0, 2000.0])
def test_a_token_that_a_gate_leaves_out_adds_nothing_however_far_it_moved(log, objective):
    for advantage in (-2.0, 2.0):
        assert one(log, advantage, objective, weight=0.0) == (0.0, 0.0)


def test_one_token_too_far_leaves_the_gradients_of_the_others_as_they_are():
    mask, advantage = torch.ones(1, 3, dtype=torch.bool), torch.ones(1, 3)
    near = torch.tensor([[-1.0, -1.1, -0.9]])
    gradients = []
    for old in (near, near - torch.tensor([[0.0, 0.0, 150.0]])):
        logprob = near.clone().requires_grad_()
        policy_loss(logprob, old, advantage, mask, objective=OBJECTIVES["dapo"], denominator=3.0).backward()
        gradients.append(logprob.grad)
    assert torch.equal(gradients[0][:, :2], gradients[1][:, :2])
    assert gradients[1][0, 2] == 0


def test_a_sequence_too_far_is_clipped_too():
    logprob = torch.tensor([[-1.0, -1.0]], requires_grad=True)
    mask, old = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[-180.0, -180.0]])
    objective = replace(OBJECTIVES["gspo"], clip_high=0.25)
    loss = policy_loss(logprob, old, torch.ones(1, 2), mask, objective=objective, denominator=1.0)
    loss.backward()
    assert (loss.item(), logprob.grad.tolist()) == (-1.25, [[0.0, 0.0]])


def kl_of(new, old, ref, estimator):
    """Loss and gradient of the KL of one token."""
    logprob = torch.tensor([[new]], requires_grad=True)
    mask, rest = torch.tensor([[True]]), {"estimator": estimator, "aggregation": "token_mean"}
    loss = kl_loss(logprob, torch.tensor([[old]]), torch.tensor([[ref]]), mask, **rest, denominator=1.0)
    loss.backward()
    return loss.item(), logprob.grad.item()


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("new", [-1.0, -120.0, -700.0])
@pytest.mark.parametrize("old", [-1.0, -95.0, -180.0, -702.0])
@pytest.mark.parametrize("ref", [-1.0, -2.0, -95.0, -120.0, -705.0])
def test_a_kl_is_right_whichever_of_the_three_is_far_away(new, old, ref, estimator):
    x, y = mpmath.mpf(new) - old, mpmath.mpf(ref) - new
    value = {"k1": -y, "k2": y**2 / 2, "k3": mpmath.expm1(y) - y}[estimator]
    slope = {"k1": mpmath.mpf(1), "k2": -y, "k3": -mpmath.expm1(y)}[estimator]
    loss, gradient = kl_of(new, old, ref, estimator)
    assert close(loss, mpmath.exp(x) * value)
    assert close(gradient, mpmath.exp(x) * slope)


@pytest.mark.parametrize("log", [-800.0, -120.0, 0.5, 120.0, 800.0])
def test_corrections_are_right_however_far_trainer_and_sampler_are_apart(log):
    old, drawn, mask = torch.tensor([[-1.0]]), torch.tensor([[-1.0 - log]]), torch.tensor([[True]])
    ratio = mpmath.exp(log)
    inside = float(0.5 <= ratio <= 2)
    for method, wanted in (("truncate", min(ratio, 2)), ("mask", inside * ratio), ("sequence", inside)):
        got = correction_weights(old, drawn, mask, method, 0.5, 2.0).item()
        assert close(got, mpmath.mpf(wanted))
