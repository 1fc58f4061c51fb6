import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truing.errors import InvalidValueError
from truing.ops.aggregate import denominator
from truing.ops.losses import (
    OBJECTIVES,
    Objective,
    cispo_surrogate,
    clipped_surrogate,
    policy_loss,
)

NAN = float("nan")
NAMES = tuple(OBJECTIVES)


def test_clipped_surrogate_hand_worked():
    # band [0.8, 1.2]: A = 1: −min(1.5, 1.2) = −1.2; −min(0.5, 0.8) = −0.5
    #                  A = −2: −min(−3, −2.4) = 3;    −min(−1, −1.6) = 1.6
    ratio = torch.tensor([1.5, 0.5, 1.5, 0.5], requires_grad=True)
    advantage = torch.tensor([1.0, 1.0, -2.0, -2.0], requires_grad=True)
    loss = clipped_surrogate(ratio, advantage, 0.2, 0.2)
    torch.testing.assert_close(loss, torch.tensor([-1.2, -0.5, 3.0, 1.6]))
    loss.sum().backward()  # −A where the ratio may still move, 0 where the clip holds it
    assert ratio.grad.tolist() == [0.0, -1.0, 2.0, 0.0]
    assert advantage.grad is None


def test_cispo_surrogate_hand_worked():
    # −min(r, 2) · A · log π: r = 3 → −2 · 1 · −0.5 = 1; r = ½ → −½ · −4 · −1 = −2
    logprob = torch.tensor([-0.5, -1.0], requires_grad=True)
    ratio = torch.tensor([3.0, 0.5], requires_grad=True)
    advantage = torch.tensor([1.0, -4.0], requires_grad=True)
    loss = cispo_surrogate(logprob, ratio, advantage, 2.0)
    assert loss.tolist() == [1.0, -2.0]
    loss.sum().backward()
    assert logprob.grad.tolist() == [-2.0, 2.0]
    assert ratio.grad is None
    assert advantage.grad is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # ratios 2, ½ | 1, with A = 1 | −1: clip gives −1.2, −½ | 1 (dapo: −1.28, −½ | 1)
        ("grpo", ((-1.2 - 0.5) / 2 + 1) / 2),
        ("dr_grpo", (-1.2 - 0.5 + 1) / (2 * 9)),  # up to nine tokens each
        ("dapo", (-1.28 - 0.5 + 1) / 3),
        ("bnpo", (-1.2 - 0.5 + 1) / 3),
        ("ppo", (-1.2 - 0.5 + 1) / 3),
        # sequence ratios: exp(mean(log 2, log ½)) = 1 | 1
        ("gspo", ((-1 - 1) / 2 + 1) / 2),
        # −min(r, 5) A log π, log π = log ½ throughout: (2 + ½ − 1) log 2 over three tokens
        ("cispo", 1.5 * math.log(2) / 3),
        # −A log π: (1 + 1 − 1) log 2, up to nine tokens in each of two sequences
        ("reinforce", math.log(2) / 18),
    ],
)
def test_policy_loss_hand_worked(case, name, expected):
    logprob_BT = torch.tensor([[0.5, 0.5], [0.5, NAN]], dtype=torch.float64).log()
    old_BT = torch.tensor([[0.25, 1.0], [0.5, NAN]], dtype=torch.float64).log()
    advantage_BT = torch.tensor([[1.0, 1.0], [-1.0, NAN]], dtype=torch.float64)
    mask_BT = torch.tensor([[True, True], [True, False]])
    assert case.loss_of(OBJECTIVES[name], logprob_BT, old_BT, advantage_BT, mask_BT).item() == pytest.approx(
        expected
    )


def slow_policy_loss(objective, budget, logprob_BT, old_BT, advantage_BT, mask_BT):
    """The same in plain loops over Python numbers."""
    sums, weighted = [], 0.0
    for b in range(len(mask_BT)):
        on = [t for t in range(mask_BT.shape[1]) if mask_BT[b, t]]
        logs = {t: (logprob_BT[b, t] - old_BT[b, t]).item() for t in on}
        if objective.ratio == "sequence":
            logs = dict.fromkeys(on, sum(logs.values()) / max(len(on), 1))
        losses = []
        for t in on:
            ratio, advantage = math.exp(logs[t]), advantage_BT[b, t].item()
            if objective.surrogate == "clip":
                inside = min(max(ratio, 1 - objective.clip_low), 1 + objective.clip_high)
                losses.append(-min(ratio * advantage, inside * advantage))
            elif objective.surrogate == "reinforce":
                losses.append(-advantage * logprob_BT[b, t].item())
            else:
                losses.append(-min(ratio, objective.max_ratio) * advantage * logprob_BT[b, t].item())
        sums.append(sum(losses))
        weighted += sum(losses) / max(len(on), 1)
    if objective.aggregation == "token_mean":
        return sum(sums) / mask_BT.sum().item()
    return (
        weighted / len(sums) if objective.aggregation == "sequence_mean" else sum(sums) / len(sums) / budget
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_policy_loss_against_a_plain_loop(case, name, seed):
    streams = case.batch(seed)
    expected = slow_policy_loss(OBJECTIVES[name], case.budget, *streams)
    assert case.loss_of(OBJECTIVES[name], *streams).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_policy_loss_gradient(case, name):
    logprob_BT, old_BT, advantage_BT, mask_BT = case.batch()
    if OBJECTIVES[name].surrogate != "cispo":  # cispo stops a gradient on purpose: finite differences see it
        logprob_BT = logprob_BT.nan_to_num(nan=-1.0).requires_grad_()
        assert torch.autograd.gradcheck(
            lambda x: case.loss_of(OBJECTIVES[name], x, old_BT, advantage_BT, mask_BT), logprob_BT
        )
        return
    _, gradient_BT = case.with_gradient(
        lambda x: case.loss_of(OBJECTIVES[name], x, old_BT, advantage_BT, mask_BT), logprob_BT
    )
    expected_BT = -(logprob_BT - old_BT).exp().clamp(max=5.0) * advantage_BT / mask_BT.sum()
    torch.testing.assert_close(gradient_BT, expected_BT.masked_fill(~mask_BT, 0.0))


@pytest.mark.parametrize("name", NAMES)
def test_on_policy_gradient_is_reinforce(case, name):
    # r = 1 everywhere: no clip, and ∇ℓ = −A ∇ log π with the aggregation's weights
    logprob_BT, _, advantage_BT, mask_BT = case.batch()
    objective = OBJECTIVES[name]
    _, gradient_BT = case.with_gradient(
        lambda x: case.loss_of(objective, x, logprob_BT, advantage_BT, mask_BT), logprob_BT
    )
    weight_BT = {
        "token_mean": 1 / mask_BT.sum(),
        "sequence_mean": 1 / (4 * case.lengths_B[:, None]),
        "sequence_sum": torch.tensor(1 / (4 * case.budget)),
    }[objective.aggregation]
    expected_BT = (-advantage_BT * weight_BT).masked_fill(~mask_BT, 0.0)
    torch.testing.assert_close(gradient_BT, expected_BT)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_micro_batches_give_the_gradient_of_one(case, name, parts):
    objective, streams = OBJECTIVES[name], case.batch()
    expected, expected_BT = case.with_gradient(lambda x: case.loss_of(objective, x, *streams[1:]), streams[0])
    total = denominator(case.lengths_B, objective.aggregation, case.budget)
    pieces = []
    for micro in zip(*(stream_BT.chunk(parts) for stream_BT in streams), strict=True):
        pieces.append(
            case.with_gradient(
                lambda x, rest=micro[1:]: policy_loss(x, *rest, objective=objective, denominator=total),
                micro[0],
            )
        )
    torch.testing.assert_close(sum(loss for loss, _ in pieces), expected)
    torch.testing.assert_close(torch.cat([gradient for _, gradient in pieces]), expected_BT)


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_mask_is_zero_with_zero_gradient(case, name):
    logprob_BT, old_BT, advantage_BT, mask_BT = case.batch()
    nothing_BT = torch.zeros_like(mask_BT)
    loss, gradient_BT = case.with_gradient(
        lambda x: case.loss_of(OBJECTIVES[name], x, old_BT, advantage_BT, nothing_BT), logprob_BT
    )
    assert loss.item() == 0
    assert (gradient_BT == 0).all()


@given(st.integers(0, 99), st.sampled_from(NAMES), st.integers(1, 3))
def test_order_of_rows_and_padding_change_nothing(case, seed, name, pads):
    streams = case.batch(seed)
    order = torch.randperm(4, generator=torch.Generator().manual_seed(seed))
    fill = [NAN, NAN, NAN, False]
    moved = [
        torch.cat([stream_BT[order], torch.full((4, pads), blank, dtype=stream_BT.dtype)], dim=1)
        for stream_BT, blank in zip(streams, fill, strict=True)
    ]
    torch.testing.assert_close(
        case.loss_of(OBJECTIVES[name], *moved), case.loss_of(OBJECTIVES[name], *streams)
    )


@given(st.integers(0, 99), st.sampled_from(NAMES), st.floats(0.1, 10))
def test_loss_scales_with_the_advantage(case, seed, name, scale):
    logprob_BT, old_BT, advantage_BT, mask_BT = case.batch(seed)
    expected = case.loss_of(OBJECTIVES[name], logprob_BT, old_BT, advantage_BT, mask_BT) * scale
    torch.testing.assert_close(
        case.loss_of(OBJECTIVES[name], logprob_BT, old_BT, advantage_BT * scale, mask_BT), expected
    )


def test_an_objective_reads_every_number_it_is_given():
    with pytest.raises(InvalidValueError, match="surrogate clip"):
        Objective("clip", "token", "token_mean", clip_low=0.2)
    with pytest.raises(InvalidValueError, match="surrogate clip"):
        replace(OBJECTIVES["grpo"], max_ratio=2.0)
    with pytest.raises(InvalidValueError, match="surrogate cispo"):
        replace(OBJECTIVES["cispo"], clip_high=0.2)
    with pytest.raises(InvalidValueError, match="> 0"):
        replace(OBJECTIVES["grpo"], clip_low=0.0)
    for field in ("surrogate", "ratio", "aggregation"):
        with pytest.raises(InvalidValueError, match=f"{field} is none of its choices"):
            replace(OBJECTIVES["grpo"], **{field: "tokens"})
