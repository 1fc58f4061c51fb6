"""Terms other than the surrogate: the KL, the entropy bonus, and the plain score function."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truing.ops.kl import kl
from truing.ops.losses import entropy_loss, kl_loss, reinforce_surrogate
from truing.ops.ratios import token_ratio

NAN = float("nan")
MASK_BT = torch.tensor([[True, True, False]])
MEAN = {"aggregation": "token_mean", "denominator": 2.0}


def test_reinforce_surrogate_hand_worked(case):
    logprob = torch.tensor([math.log(0.5), math.log(0.25), NAN])
    advantage = torch.tensor([2.0, -1.0, NAN], requires_grad=True)
    loss, gradient = case.with_gradient(lambda x: reinforce_surrogate(x, advantage)[:2].sum(), logprob)
    assert loss.item() == pytest.approx(2 * math.log(2) - math.log(4))
    assert gradient[:2].tolist() == [-2.0, 1.0]
    assert not reinforce_surrogate(logprob, advantage).requires_grad


@pytest.mark.parametrize(
    ("estimator", "value", "slope"),
    # π = ½, π_ref = ¼, drawn with ¼: r = 2, x = log π_ref − log π = −log 2
    [
        ("k1", 2 * math.log(2), 2.0),
        ("k2", 2 * math.log(2) ** 2 / 2, 2 * math.log(2)),
        ("k3", 2 * (0.5 - 1 + math.log(2)), 2 * (1 - 0.5)),
    ],
)
def test_kl_loss_hand_worked(case, estimator, value, slope):
    """The second token is drawn by the policy itself, which is the reference: it adds nothing."""
    logprob_BT, old_BT, ref_BT = (
        torch.tensor([[p, 0.5, NAN]], dtype=torch.float64).log() for p in (0.5, 0.25, 0.25)
    )
    loss, gradient_BT = case.with_gradient(
        lambda x: kl_loss(x, old_BT, ref_BT, MASK_BT, estimator=estimator, **MEAN), logprob_BT
    )
    assert loss.item() == pytest.approx(value / 2)
    still = {"k1": 0.5, "k2": 0.0, "k3": 0.0}[estimator]
    assert gradient_BT[0].tolist() == pytest.approx([slope / 2, still, 0.0])


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "sequence_sum"])
def test_kl_loss_against_a_plain_loop_and_finite_differences(case, estimator, aggregation):
    logprob_BT, old_BT, ref_BT, mask_BT = case.batch(3)
    how = {"estimator": estimator, "aggregation": aggregation, "denominator": 4.0}
    slow = 0.0
    for b, row in enumerate(mask_BT):
        of_row = [
            math.exp(logprob_BT[b, t] - old_BT[b, t]) * kl(logprob_BT[b, t], ref_BT[b, t], estimator).item()
            for t in row.nonzero()[:, 0]
        ]
        slow += sum(of_row) / (len(of_row) if aggregation == "sequence_mean" else 1)
    loss, gradient_BT = case.with_gradient(lambda x: kl_loss(x, old_BT, ref_BT, mask_BT, **how), logprob_BT)
    assert loss.item() == pytest.approx(slow / 4)
    ratio_BT = token_ratio(logprob_BT - old_BT)  # a constant, as the loss has it
    for place in mask_BT.nonzero():
        step_BT = torch.zeros_like(logprob_BT)
        step_BT[tuple(place)] = 1e-6

        def term(x_BT):
            per_token_BT = (ratio_BT * kl(x_BT, ref_BT, estimator)).nan_to_num()
            share_B = mask_BT.sum(1) if aggregation == "sequence_mean" else torch.ones(len(mask_BT))
            return (per_token_BT.sum(1) / share_B).sum() / 4

        slope = (term(logprob_BT + step_BT) - term(logprob_BT - step_BT)) / 2e-6
        assert gradient_BT[tuple(place)].item() == pytest.approx(slope.item(), abs=1e-6)
    assert (gradient_BT[~mask_BT] == 0).all()


@given(st.integers(0, 99), st.integers(1, 3))
def test_parts_of_a_kl_loss_add_up(case, seed, cut):
    streams = case.batch(seed)
    how = {"estimator": "k3", "aggregation": "sequence_mean", "denominator": 4.0}
    whole = kl_loss(*streams, **how)
    parts = [kl_loss(*(x[rows] for x in streams), **how) for rows in (slice(cut), slice(cut, None))]
    torch.testing.assert_close(sum(parts), whole)


def test_an_empty_kl_loss_is_nothing(case):
    streams = [torch.full((1, 3), NAN)] * 3
    loss, gradient_BT = case.with_gradient(
        lambda x: kl_loss(x, *streams[1:], torch.zeros_like(MASK_BT), estimator="k3", **MEAN), streams[0]
    )
    assert loss.item() == 0
    assert gradient_BT.tolist() == [[0.0, 0.0, 0.0]]


def test_entropy_loss_rewards_entropy(case):
    entropy_BT = torch.tensor([[1.0, 0.5, NAN]])
    loss, gradient_BT = case.with_gradient(lambda x: entropy_loss(x, MASK_BT, "token_mean", 2.0), entropy_BT)
    assert loss.item() == -0.75
    assert gradient_BT.tolist() == [[-0.5, -0.5, 0.0]]
    assert entropy_loss(entropy_BT, torch.zeros_like(MASK_BT), "token_mean", 1.0).item() == 0


@given(st.lists(st.floats(-2, 2), min_size=4, max_size=4))
def test_entropy_loss_flattens_a_distribution(logits):
    """A step down its gradient raises the entropy of softmax(logits), unless it is uniform."""
    logits_V = torch.tensor(logits, dtype=torch.float64, requires_grad=True)

    def entropy(z_V):
        logprob_V = z_V.log_softmax(-1)
        return -(logprob_V.exp() * logprob_V).sum()

    loss = entropy_loss(entropy(logits_V).view(1, 1), torch.ones(1, 1, dtype=torch.bool), "token_mean", 1.0)
    (slope_V,) = torch.autograd.grad(loss, logits_V)
    assert entropy(logits_V - 1e-3 * slope_V) >= entropy(logits_V) - 1e-12
    if slope_V.norm() > 1e-3:
        assert entropy(logits_V - 1e-3 * slope_V) > entropy(logits_V)
