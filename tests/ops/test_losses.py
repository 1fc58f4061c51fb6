"""Losses against hand-worked values, gradients, plain loops, polgrad and TRL."""

import math
import warnings
from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace

import polgrad
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from truing.errors import ContractError
from truing.ops.aggregate import denominator
from truing.ops.losses import (
    OBJECTIVES,
    Objective,
    cispo_surrogate,
    clipped_surrogate,
    cross_entropy_loss,
    policy_loss,
    value_loss,
)

NAN = float("nan")
NAMES = tuple(OBJECTIVES)
BUDGET = 9
LENGTHS_B = torch.tensor([5, 1, 4, 2])


def batch(seed=0):
    """Four ragged sequences [4, 5] whose policy has moved enough to clip on both sides; pads are NaN."""
    generator = torch.Generator().manual_seed(seed)
    mask_BT = torch.arange(5) < LENGTHS_B[:, None]
    logprob_BT = -torch.rand(4, 5, generator=generator, dtype=torch.float64) - 0.5
    old_BT = logprob_BT + 0.5 * torch.randn(4, 5, generator=generator, dtype=torch.float64)
    advantage_B = torch.tensor([1.0, -0.5, -1.5, 2.0], dtype=torch.float64)
    pads = torch.where(mask_BT, 0.0, NAN)
    return logprob_BT + pads, old_BT + pads, advantage_B[:, None] + pads, mask_BT


def loss_of(objective, logprob_BT, old_BT, advantage_BT, mask_BT):
    total = denominator(mask_BT.sum(dim=1), objective.aggregation, BUDGET)
    return policy_loss(logprob_BT, old_BT, advantage_BT, mask_BT, objective=objective, denominator=total)


def with_gradient(loss, logprob_BT):
    """A loss and its gradient with respect to the log-probabilities, with the pads' set to 0."""
    logprob_BT = logprob_BT.clone().requires_grad_()
    value = loss(logprob_BT)
    (gradient_BT,) = torch.autograd.grad(value, logprob_BT)
    return value.detach(), gradient_BT


def test_clipped_surrogate_hand_worked():
    # band [0.8, 1.2]: A = 1: −min(1.5, 1.2) = −1.2; −min(0.5, 0.8) = −0.5
    #                  A = −2: −min(−3, −2.4) = 3;    −min(−1, −1.6) = 1.6
    ratio = torch.tensor([1.5, 0.5, 1.5, 0.5], requires_grad=True)
    loss = clipped_surrogate(ratio, torch.tensor([1.0, 1.0, -2.0, -2.0]), 0.2, 0.2)
    torch.testing.assert_close(loss, torch.tensor([-1.2, -0.5, 3.0, 1.6]))
    loss.sum().backward()  # −A where the ratio may still move, 0 where the clip holds it
    assert ratio.grad.tolist() == [0.0, -1.0, 2.0, 0.0]


def test_cispo_surrogate_hand_worked():
    # −min(r, 2) · A · log π: r = 3 → −2 · 1 · −0.5 = 1; r = ½ → −½ · −4 · −1 = −2
    logprob = torch.tensor([-0.5, -1.0], requires_grad=True)
    ratio = torch.tensor([3.0, 0.5], requires_grad=True)
    loss = cispo_surrogate(logprob, ratio, torch.tensor([1.0, -4.0]), 2.0)
    assert loss.tolist() == [1.0, -2.0]
    loss.sum().backward()
    assert logprob.grad.tolist() == [-2.0, 2.0]
    assert ratio.grad is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # ratios 2, ½ | 1, with A = 1 | −1: clip gives −1.2, −½ | 1 (dapo: −1.28, −½ | 1)
        ("grpo", ((-1.2 - 0.5) / 2 + 1) / 2),
        ("dr_grpo", (-1.2 - 0.5 + 1) / (2 * BUDGET)),
        ("dapo", (-1.28 - 0.5 + 1) / 3),
        ("bnpo", (-1.2 - 0.5 + 1) / 3),
        ("ppo", (-1.2 - 0.5 + 1) / 3),
        # sequence ratios: exp(mean(log 2, log ½)) = 1 | 1
        ("gspo", ((-1 - 1) / 2 + 1) / 2),
        # −min(r, 5) A log π, log π = log ½ throughout: (2 + ½ − 1) log 2 over three tokens
        ("cispo", 1.5 * math.log(2) / 3),
    ],
)
def test_policy_loss_hand_worked(name, expected):
    logprob_BT = torch.tensor([[0.5, 0.5], [0.5, NAN]], dtype=torch.float64).log()
    old_BT = torch.tensor([[0.25, 1.0], [0.5, NAN]], dtype=torch.float64).log()
    advantage_BT = torch.tensor([[1.0, 1.0], [-1.0, NAN]], dtype=torch.float64)
    mask_BT = torch.tensor([[True, True], [True, False]])
    assert loss_of(OBJECTIVES[name], logprob_BT, old_BT, advantage_BT, mask_BT).item() == pytest.approx(
        expected
    )


def slow_policy_loss(objective, logprob_BT, old_BT, advantage_BT, mask_BT):
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
            else:
                losses.append(-min(ratio, objective.max_ratio) * advantage * logprob_BT[b, t].item())
        sums.append(sum(losses))
        weighted += sum(losses) / max(len(on), 1)
    if objective.aggregation == "token_mean":
        return sum(sums) / mask_BT.sum().item()
    return (
        weighted / len(sums) if objective.aggregation == "sequence_mean" else sum(sums) / len(sums) / BUDGET
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_policy_loss_against_a_plain_loop(name, seed):
    streams = batch(seed)
    expected = slow_policy_loss(OBJECTIVES[name], *streams)
    assert loss_of(OBJECTIVES[name], *streams).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_policy_loss_gradient(name):
    logprob_BT, old_BT, advantage_BT, mask_BT = batch()
    if OBJECTIVES[name].surrogate == "clip":  # cispo stops a gradient on purpose: finite differences see it
        logprob_BT = logprob_BT.nan_to_num(nan=-1.0).requires_grad_()
        assert torch.autograd.gradcheck(
            lambda x: loss_of(OBJECTIVES[name], x, old_BT, advantage_BT, mask_BT), logprob_BT
        )
        return
    _, gradient_BT = with_gradient(
        lambda x: loss_of(OBJECTIVES[name], x, old_BT, advantage_BT, mask_BT), logprob_BT
    )
    expected_BT = -(logprob_BT - old_BT).exp().clamp(max=5.0) * advantage_BT / mask_BT.sum()
    torch.testing.assert_close(gradient_BT, expected_BT.masked_fill(~mask_BT, 0.0))


@pytest.mark.parametrize("name", NAMES)
def test_on_policy_gradient_is_reinforce(name):
    # r = 1 everywhere: no clip, and ∇ℓ = −A ∇ log π with the aggregation's weights
    logprob_BT, _, advantage_BT, mask_BT = batch()
    objective = OBJECTIVES[name]
    _, gradient_BT = with_gradient(
        lambda x: loss_of(objective, x, logprob_BT, advantage_BT, mask_BT), logprob_BT
    )
    weight_BT = {
        "token_mean": 1 / mask_BT.sum(),
        "sequence_mean": 1 / (4 * LENGTHS_B[:, None]),
        "sequence_sum": torch.tensor(1 / (4 * BUDGET)),
    }[objective.aggregation]
    expected_BT = (-advantage_BT * weight_BT).masked_fill(~mask_BT, 0.0)
    torch.testing.assert_close(gradient_BT, expected_BT)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_micro_batches_give_the_gradient_of_one(name, parts):
    objective, streams = OBJECTIVES[name], batch()
    expected, expected_BT = with_gradient(lambda x: loss_of(objective, x, *streams[1:]), streams[0])
    total = denominator(LENGTHS_B, objective.aggregation, BUDGET)
    pieces = []
    for micro in zip(*(stream_BT.chunk(parts) for stream_BT in streams), strict=True):
        pieces.append(
            with_gradient(
                lambda x, rest=micro[1:]: policy_loss(x, *rest, objective=objective, denominator=total),
                micro[0],
            )
        )
    torch.testing.assert_close(sum(loss for loss, _ in pieces), expected)
    torch.testing.assert_close(torch.cat([gradient for _, gradient in pieces]), expected_BT)


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_mask_is_zero_with_zero_gradient(name):
    logprob_BT, old_BT, advantage_BT, mask_BT = batch()
    nothing_BT = torch.zeros_like(mask_BT)
    loss, gradient_BT = with_gradient(
        lambda x: loss_of(OBJECTIVES[name], x, old_BT, advantage_BT, nothing_BT), logprob_BT
    )
    assert loss.item() == 0
    assert (gradient_BT == 0).all()


@given(st.integers(0, 99), st.sampled_from(NAMES), st.integers(1, 3))
def test_order_of_rows_and_padding_change_nothing(seed, name, pads):
    streams = batch(seed)
    order = torch.randperm(4, generator=torch.Generator().manual_seed(seed))
    fill = [NAN, NAN, NAN, False]
    moved = [
        torch.cat([stream_BT[order], torch.full((4, pads), blank, dtype=stream_BT.dtype)], dim=1)
        for stream_BT, blank in zip(streams, fill, strict=True)
    ]
    torch.testing.assert_close(loss_of(OBJECTIVES[name], *moved), loss_of(OBJECTIVES[name], *streams))


@given(st.integers(0, 99), st.sampled_from(NAMES), st.floats(0.1, 10))
def test_loss_scales_with_the_advantage(seed, name, scale):
    logprob_BT, old_BT, advantage_BT, mask_BT = batch(seed)
    expected = loss_of(OBJECTIVES[name], logprob_BT, old_BT, advantage_BT, mask_BT) * scale
    torch.testing.assert_close(
        loss_of(OBJECTIVES[name], logprob_BT, old_BT, advantage_BT * scale, mask_BT), expected
    )


def test_an_objective_reads_every_number_it_is_given():
    with pytest.raises(ContractError, match="surrogate clip"):
        Objective("clip", "token", "token_mean", clip_low=0.2)
    with pytest.raises(ContractError, match="surrogate clip"):
        replace(OBJECTIVES["grpo"], max_ratio=2.0)
    with pytest.raises(ContractError, match="surrogate cispo"):
        replace(OBJECTIVES["cispo"], clip_high=0.2)
    with pytest.raises(ContractError, match="> 0"):
        replace(OBJECTIVES["grpo"], clip_low=0.0)


def test_value_loss_hand_worked():
    # V 3, V_old 1, R 0, ε ½: clip(3) = 1.5; max(9, 2.25)/2 = 4.5, gradient V − R = 3
    # V 3, V_old 1, R 4:      clip(3) = 1.5; max(1, 6.25)/2 = 3.125, gradient 0: held by the clip
    value_BT = torch.tensor([[3.0, 3.0, NAN]])
    rest = (
        torch.tensor([[0.0, 4.0, NAN]]),
        torch.tensor([[1.0, 1.0, NAN]]),
        torch.tensor([[True, True, False]]),
    )
    loss, gradient_BT = with_gradient(lambda v: value_loss(v, *rest, 0.5, 2.0), value_BT)
    assert loss.item() == pytest.approx((4.5 + 3.125) / 2)
    assert gradient_BT.tolist() == [[1.5, 0.0, 0.0]]
    loss, gradient_BT = with_gradient(lambda v: value_loss(v, *rest, None, 2.0), value_BT)
    assert loss.item() == pytest.approx((9 / 2 + 1 / 2) / 2)
    assert gradient_BT.tolist() == [[1.5, -0.5, 0.0]]


@pytest.mark.parametrize("clip_range", [None, 0.2])
def test_value_loss_against_a_plain_loop_and_polgrad(clip_range):
    value_BT, old_BT, returns_BT, mask_BT = batch()
    tokens = mask_BT.sum().item()
    slow = 0.0
    for value, old, target in zip(value_BT[mask_BT], old_BT[mask_BT], returns_BT[mask_BT], strict=True):
        errors = [(value - target) ** 2]
        if clip_range is not None:
            errors.append((min(max(value, old - clip_range), old + clip_range) - target) ** 2)
        slow += max(errors).item() / 2
    got, gradient_BT = with_gradient(
        lambda v: value_loss(v, returns_BT, old_BT, mask_BT, clip_range, tokens), value_BT
    )
    assert got.item() == pytest.approx(slow / tokens)

    def theirs(v):
        config = {"clip_eps": clip_range, "aggregation": polgrad.Aggregation.TOKEN_MEAN}
        plain = [x.nan_to_num(nan=0.0) for x in (v, old_BT, returns_BT)]
        return polgrad.value_loss(*plain, mask_BT, **config).loss

    expected, expected_BT = with_gradient(theirs, value_BT)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(gradient_BT, expected_BT.nan_to_num(nan=0.0))


@given(st.integers(0, 99), st.floats(-5, 5))
def test_value_loss_sees_differences_only(seed, shift):
    value_BT, old_BT, returns_BT, mask_BT = batch(seed)
    expected = value_loss(value_BT, returns_BT, old_BT, mask_BT, 0.2, 12.0)
    moved = value_loss(value_BT + shift, returns_BT + shift, old_BT + shift, mask_BT, 0.2, 12.0)
    torch.testing.assert_close(moved, expected)


def test_cross_entropy_hand_worked():
    # −(log ½ + log ¼) / 2 = 1.5 log 2; each masked token's gradient is −½
    logprob_BT, mask_BT = torch.tensor([[0.5, 0.25, NAN]]).log(), torch.tensor([[True, True, False]])
    loss, gradient_BT = with_gradient(lambda x: cross_entropy_loss(x, mask_BT, 2.0), logprob_BT)
    assert loss.item() == pytest.approx(1.5 * math.log(2))
    assert gradient_BT.tolist() == [[-0.5, -0.5, 0.0]]
    assert cross_entropy_loss(logprob_BT, torch.zeros_like(mask_BT), 1.0).item() == 0


@given(st.integers(0, 99))
def test_cross_entropy_is_torch_s_own(seed):
    generator = torch.Generator().manual_seed(seed)
    logits_NV = torch.randn(6, 5, generator=generator)
    ids_N = torch.randint(5, (6,), generator=generator)
    logprob_BT = logits_NV.log_softmax(-1).gather(1, ids_N[:, None]).view(2, 3)
    mask_BT = torch.tensor([[True, True, True], [False, True, False]])
    expected = torch.nn.functional.cross_entropy(logits_NV[mask_BT.view(-1)], ids_N[mask_BT.view(-1)])
    torch.testing.assert_close(cross_entropy_loss(logprob_BT, mask_BT, 4.0), expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_polgrad(name, seed):
    objective = OBJECTIVES[name]
    logprob_BT, old_BT, advantage_BT, mask_BT = batch(seed)
    modes = {
        "token_mean": "TOKEN_MEAN",
        "sequence_mean": "SEQ_MEAN_TOKEN_MEAN",
        "sequence_sum": "TOKEN_SUM_NORM",
    }
    clip = polgrad.ClipConfig(objective.clip_low, objective.clip_high)
    surrogate = polgrad.SurrogateKind.PG_CLIP
    if objective.surrogate == "cispo":
        clip = polgrad.ClipConfig(None, objective.max_ratio - 1)
        surrogate = polgrad.SurrogateKind.CISPO
    config = polgrad.PolicyLossConfig(
        ratio=polgrad.RatioKind(objective.ratio),
        surrogate=surrogate,
        clip=clip,
        aggregation=polgrad.Aggregation[modes[objective.aggregation]],
        norm_len=BUDGET,
    )

    def theirs(x):
        streams = {
            "logprobs": x,
            "old_logprobs": old_BT,
            "advantages": advantage_BT,
            "response_mask": mask_BT,
        }
        return polgrad.policy_loss(config, **streams).loss

    expected, expected_BT = with_gradient(theirs, logprob_BT)
    got, got_BT = with_gradient(lambda x: loss_of(objective, x, old_BT, advantage_BT, mask_BT), logprob_BT)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(got_BT, expected_BT)


@pytest.fixture(scope="module")
def trl_compute_loss():
    """TRL's own loss, called on a stand-in for its trainer that holds only what the method reads."""
    trl = pytest.importorskip("trl", reason="TRL is not installed: its loss was not compared")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compute = trl.GRPOTrainer._compute_loss

    def loss(objective, loss_type, streams, *, micro_batches=1) -> Tensor:
        logprob_BT, old_BT, advantage_BT, mask_BT = (x.nan_to_num(nan=0.0) for x in streams)
        high = objective.max_ratio if loss_type == "cispo" else objective.clip_high
        trainer = SimpleNamespace(
            _get_per_token_logps_and_entropies=lambda *_, **__: (
                logprob_BT,
                torch.zeros_like(logprob_BT),
                None,
            ),
            _metrics={"train": defaultdict(list)},
            _entropy_bonus_enabled=False,
            accelerator=SimpleNamespace(
                num_processes=1,
                gather=lambda x: x,
                reduce=lambda x, reduction: x,
                gather_for_metrics=lambda x: x,
            ),
            args=SimpleNamespace(
                delta=None, steps_per_generation=micro_batches, use_bias_correction_kl=False
            ),
            aux_loss_enabled=False,
            beta=0.0,
            current_gradient_accumulation_steps=micro_batches,
            epsilon_high=high,
            epsilon_low=objective.clip_low,
            importance_sampling_level=objective.ratio,
            loss_type=loss_type,
            max_completion_length=BUDGET,
            model=SimpleNamespace(training=True),
            off_policy_mask_threshold=None,
            top_entropy_quantile=1.0,
            use_vllm=False,
        )
        ids_BT = torch.zeros_like(mask_BT, dtype=torch.int64)
        inputs = {
            "prompt_ids": ids_BT,
            "prompt_mask": mask_BT.long(),
            "completion_ids": ids_BT,
            "completion_mask": mask_BT.long(),
            "advantages": advantage_BT,
            "old_per_token_logps": old_BT,
            "num_items_in_batch": LENGTHS_B.sum(),
        }
        return compute(trainer, None, inputs)

    return loss


TRL_TYPES = {
    "grpo": "grpo",
    "dr_grpo": "dr_grpo",
    "dapo": "dapo",
    "bnpo": "bnpo",
    "gspo": "grpo",
    "cispo": "cispo",
}


@pytest.mark.parametrize(("name", "loss_type"), TRL_TYPES.items())
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_trl(trl_compute_loss, name, loss_type, seed):
    objective = OBJECTIVES[name]
    logprob_BT, *rest = batch(seed)
    expected, expected_BT = with_gradient(
        lambda x: trl_compute_loss(objective, loss_type, (x, *rest)), logprob_BT
    )
    got, got_BT = with_gradient(lambda x: loss_of(objective, x, *rest), logprob_BT)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(got_BT, expected_BT.nan_to_num(nan=0.0))


@pytest.mark.parametrize(("name", "same"), [("dapo", True), ("bnpo", False)])
def test_trl_splits_bnpo_differently(trl_compute_loss, name, same):
    """Pins what the module's docstring says of TRL under gradient accumulation."""
    objective, streams = OBJECTIVES[name], batch()
    halves = zip(*(stream_BT.chunk(2) for stream_BT in streams), strict=True)
    accumulated = sum(trl_compute_loss(objective, name, half, micro_batches=2) for half in halves)
    if same:  # TRL counts num_items_in_batch over all micro-batches of a generation
        torch.testing.assert_close(accumulated, loss_of(objective, *streams))
    else:
        assert abs(accumulated - loss_of(objective, *streams)) > 1e-3
