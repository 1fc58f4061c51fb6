"""The doctor's second implementations against the trainer's first: wrong alike they are not by chance."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from samples import sample

from truing.config import OptimizerConfig
from truing.doctor.evidence import changed_step
from truing.doctor.example_steps import example_step, with_ranks
from truing.doctor.oracle.advantages import expected_group_advantages
from truing.doctor.oracle.credit import gae, group_advantage
from truing.doctor.oracle.forward import plain_logprobs
from truing.doctor.oracle.learning_rate import declared_rate
from truing.doctor.oracle.policy_weight import policy_weight
from truing.doctor.oracle.token_gradients import expected_token_gradients, expected_value_gradients
from truing.doctor.rules.msk007 import demonstrated_step
from truing.learner.lr_schedule import learning_rate
from truing.models.forward.collate import collate
from truing.models.forward.score import score
from truing.ops import advantages as ops_advantages
from truing.ops import returns as ops_returns
from truing.ops.aggregate import denominator
from truing.ops.correction import correction_weights
from truing.ops.losses import OBJECTIVES, kl_loss, policy_loss, value_loss
from truing.ops.ratios import within_bounds
from truing.types.sampling_params import SamplingParams
from truing.types.token import Support


@pytest.mark.parametrize("stage", ["sft", "grpo"])
def test_a_mean_over_ranks_of_their_token_means(stage):
    step = demonstrated_step() if stage == "sft" else example_step()
    step = changed_step(step, setup={"aggregation": "rank_token_mean"})
    step = with_ranks(step, [0] * 3 + [1] * 5)  # 12 and 20 tokens
    own_N = torch.where(step.sample_of_token < 3, 12, 20)
    mask_N = step.tokens["supervised_mask"] | step.tokens["policy_mask"]
    advantage_N = 1.0 if stage == "sft" else step.tokens["advantage"].nan_to_num().double()
    expected_N = mask_N * advantage_N / (2 * own_N)
    assert torch.allclose(expected_token_gradients(step), expected_N.double(), atol=1e-12)


@given(st.lists(st.floats(-3, 3), min_size=4, max_size=12), st.sampled_from(["group", "batch", "none"]))
def test_advantages_are_those_of_the_trainer(rewards, how):
    rewards = rewards[: len(rewards) // 2 * 2]
    half = len(rewards) // 2
    groups = [rewards[:half], rewards[half:]]
    theirs = ops_advantages.group_advantages(
        torch.tensor(rewards, dtype=torch.float64), torch.tensor([0] * half + [1] * half), how, 1e-4
    )
    ours = [group_advantage(r, groups[i // half], rewards, how, 1e-4) for i, r in enumerate(rewards)]
    assert ours == pytest.approx(theirs.tolist(), abs=1e-9)


def test_a_product_of_ratios_is_one_ratio_for_the_whole_answer():
    """RLOO's loss by autograd: −mean over answers of min(r A, clip(r) A) with r = exp(Σ log ratio)."""
    step = example_step(
        setup={"ratio": "product", "aggregation": "sequence_total", "clip_low": 0.2, "clip_high": 0.2}
    )
    mask_N = step.tokens["policy_mask"]
    noise_N = 0.1 * torch.randn(len(mask_N), generator=torch.Generator().manual_seed(2))
    old_N = step.tokens["old_logprob"].double().nan_to_num()
    new_N = (old_N + noise_N.where(mask_N, 0.0)).requires_grad_()
    rows = len(step.samples)

    def per_row(x_N):
        return torch.zeros(rows, dtype=torch.float64).index_add(
            0, step.sample_of_token, x_N.where(mask_N, 0.0)
        )

    ratio_B = per_row(new_N - old_N).exp()
    advantage_B = per_row(step.tokens["advantage"].double().nan_to_num()) / per_row(mask_N.double())
    cut_B = torch.minimum(ratio_B * advantage_B, ratio_B.clamp(0.8, 1.2) * advantage_B)
    (-cut_B.mean()).backward()
    assert ((ratio_B < 0.8) | (ratio_B > 1.2)).any()
    step = changed_step(step, new_logprob=new_N.detach().where(mask_N, torch.nan))
    assert torch.allclose(expected_token_gradients(step), -new_N.grad, atol=1e-12)


def test_cispo_with_the_ratio_of_a_sequence_weighs_each_token_by_it():
    """The loss by autograd: −mean over tokens of sg(min(r, 0.9)) A log π, r the geometric mean of a row."""
    step = example_step(
        setup={"surrogate": "cispo", "ratio": "sequence", "aggregation": "token_mean", "max_ratio": 0.9}
    )
    mask_N, row_N = step.tokens["policy_mask"], step.sample_of_token
    noise_N = 0.4 * torch.randn(len(mask_N), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    old_N = step.tokens["old_logprob"].double().nan_to_num()
    new_N = (old_N + noise_N.where(mask_N, 0.0)).requires_grad_()
    rows_BT = [(new_N - old_N)[mask_N & (row_N == b)] for b in range(len(step.samples))]
    ratio_B = torch.stack([log_T.mean().exp() for log_T in rows_BT])
    assert ((ratio_B < 0.9).any(), (ratio_B > 0.9).any()) == (True, True)
    weight_N = ratio_B.clamp(max=0.9).detach()[row_N] * step.tokens["advantage"].double()
    (-(weight_N * new_N)[mask_N].mean()).backward()
    step = changed_step(step, new_logprob=new_N.detach().where(mask_N, torch.nan))
    assert torch.allclose(expected_token_gradients(step)[mask_N], -new_N.grad[mask_N], atol=1e-12)


def test_rows_without_a_reward_leave_the_baseline_of_another_trainers_group():
    step = example_step(rewards=(1.0, 0.0, 0.5, 0.0, 1.0, 1.0, 0.0, 1.0), setup={"trainer": "trl"})
    step = changed_step(step, samples={2: {"reward": float("nan")}}, setup={"advantage": "none"})
    expected_N = expected_group_advantages(step)
    first = [float(expected_N[part.stop - 1]) for _, _, part in step.slices()][:4]
    assert first == pytest.approx([2 / 3, -1 / 3, float("nan"), -1 / 3], nan_ok=True)
    alone = changed_step(step, setup={"group_size": 5})  # the step has a part of each group
    assert expected_group_advantages(alone).isnan().all()


def test_leave_one_out_by_hand():
    assert group_advantage(1.0, [1.0, 0.0, 0.5], [], "loo", 0.0) == pytest.approx(0.75)


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=1, max_size=6),
    st.floats(-1, 1),
    st.floats(0.5, 1),
    st.floats(0, 1),
)
def test_gae_is_that_of_the_trainer(steps, last, gamma, lam):
    rewards, values = ([each[k] for each in steps] for k in (0, 1))
    table = [torch.tensor([x], dtype=torch.float64) for x in (rewards, values)]
    theirs = ops_returns.gae(
        *table,
        torch.ones(1, len(steps), dtype=torch.bool),
        torch.tensor([last], dtype=torch.float64),
        gamma,
        lam,
    )
    for ours, each in zip(gae(rewards, values, last, gamma, lam), theirs, strict=True):
        assert ours == pytest.approx(each[0].tolist(), abs=1e-9)


def weighed_by(setup, *, new=(0.0, 0.0), sampler=(0.0, 0.0), **streams):
    """The oracle's weights of a row of two tokens: at each token minus its log-probability's move."""
    step = example_step(answers=(2,), rewards=(1.0,), setup=setup)
    mask_N = step.tokens["policy_mask"]
    old_N = step.tokens["old_logprob"]
    moved = {"new_logprob": new, "sampler_logprob": sampler}
    tables = {
        name: old_N.masked_scatter(mask_N, old_N[mask_N] + torch.tensor(each)) for name, each in moved.items()
    }
    own = {name: old_N.masked_scatter(mask_N, torch.tensor(each)) for name, each in streams.items()}
    return policy_weight(changed_step(step, **tables, **own), mask_N)[mask_N].tolist()


def test_weights_of_tokens_by_hand():
    apart = (-math.log(4), math.log(4))  # the sampler's, so that old ÷ sampler is 4 and 1/4
    bounds = {"correction_low": 0.5, "correction_high": 3.0}
    assert weighed_by({"correction": "truncate", **bounds}, sampler=apart) == pytest.approx([3.0, 0.5])
    assert weighed_by({"correction": "mask", **bounds}, sampler=apart) == [0.0, 0.0]
    assert weighed_by({"correction": "sequence_mask", **bounds}, sampler=apart) == pytest.approx([1.0, 1.0])
    twice = (-math.log(2), -math.log(2))
    assert weighed_by({"correction": "sequence_truncate", **bounds}, sampler=twice) == pytest.approx([3, 3])
    lacking = (math.nan, math.log(4))  # a token without a number is not corrected
    assert weighed_by({"correction": "truncate", **bounds}, sampler=lacking) == pytest.approx([1.0, 0.5])
    # the mean of log sampler − log θ is 0.3 nats
    drift = {"new": (-0.5, 0.0), "sampler": (0.1, 0.0)}
    assert weighed_by({"row_drift": 0.2}, **drift, advantage=(-1.0, 1.0)) == [0.0, 1.0]
    assert weighed_by({"row_drift": 0.4}, **drift, advantage=(-1.0, 1.0)) == [1.0, 1.0]
    assert weighed_by({"entropy_share": 0.5}, entropy=(0.2, 1.0)) == [0.0, 1.0]


def test_gae_by_hand():
    # δ₁ = 1 + 0 − 0.5 = 0.5 = A₁; δ₀ = 0 + 0.5 − 0.25 = 0.25, A₀ = 0.25 + 0.5 · 0.5
    assert gae([0.0, 1.0], [0.25, 0.5], 0.0, 1.0, 0.5) == ([0.5, 0.5], [0.75, 1.0])


WEIGHTS = {
    "none": {},
    "gate": {"min_ratio": 0.7, "most_ratio": 1.5},
    "truncate": {"correction": "truncate", "correction_low": None, "correction_high": 1.2},
    "mask": {"correction": "mask", "correction_low": 0.7, "correction_high": 1.4},
    "sequence": {"correction": "sequence", "correction_low": 0.9, "correction_high": 1.1},
    "product-cut": {"correction": "sequence_truncate", "correction_low": None, "correction_high": 1.2},
    "product-mask": {"correction": "sequence_mask", "correction_low": 0.7, "correction_high": 1.4},
}


def weights(declared, rows, mask_BT):
    """What the trainer multiplies the policy loss of each token by."""
    log_BT = (rows["new_logprob"] - rows["old_logprob"]).nan_to_num()
    kept_BT = within_bounds(log_BT, declared.get("min_ratio"), declared.get("most_ratio")).double()
    if "correction" not in declared:
        return kept_BT
    how = [declared[key] for key in ("correction", "correction_low", "correction_high")]
    return kept_BT * correction_weights(rows["old_logprob"], rows["sampler_logprob"], mask_BT, *how)


@pytest.mark.parametrize("weighed", WEIGHTS)
@pytest.mark.parametrize("kl", ["k2", "k3"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_pull_is_what_autograd_finds(name, kl, weighed):
    objective, generator = OBJECTIVES[name], torch.Generator().manual_seed(3)
    declared = {key: getattr(objective, key) for key in ("surrogate", "ratio", "aggregation")}
    declared |= {key: getattr(objective, key) for key in ("clip_low", "clip_high", "max_ratio")}
    declared |= WEIGHTS[weighed]
    step = example_step(setup=declared | {"kl_coef": 0.3, "kl_where": "loss", "kl_estimator": kl})
    mask = step.tokens["policy_mask"]
    noise = (0.6 * torch.randn(3, len(mask), generator=generator)).where(mask, torch.nan)
    step = changed_step(
        step,
        new_logprob=step.tokens["old_logprob"] + noise[0],
        ref_logprob=step.tokens["old_logprob"] + noise[1],
        sampler_logprob=step.tokens["old_logprob"] + noise[2],
    )
    streams = ("new_logprob", "old_logprob", "ref_logprob", "sampler_logprob", "advantage")
    rows = {key: table(step, key) for key in streams}
    mask_BT = table(step, "policy_mask").nan_to_num().bool()
    new = rows["new_logprob"].double().nan_to_num().requires_grad_()
    divisor = denominator(mask_BT.sum(1), objective.aggregation, 8)
    loss = policy_loss(
        new,
        rows["old_logprob"].double(),
        rows["advantage"].double(),
        mask_BT,
        objective=objective,
        denominator=divisor,
        weight_BT=weights(WEIGHTS[weighed], rows, mask_BT),
    )
    loss = loss + 0.3 * kl_loss(
        new,
        rows["old_logprob"].double(),
        rows["ref_logprob"].double(),
        mask_BT,
        estimator=kl,
        aggregation=objective.aggregation,
        denominator=divisor,
    )
    loss.backward()
    torch.testing.assert_close(-new.grad[mask_BT], expected_token_gradients(step)[mask], rtol=1e-6, atol=1e-9)


def table(step, name):
    parts = step.tokens[name].double().split(list(step.lengths))
    return torch.nn.utils.rnn.pad_sequence(list(parts), batch_first=True, padding_value=torch.nan)


CONTRACTS = {
    "raw": {},
    "temperature": {"temperature": 0.6},
    "penalties": {"presence_penalty": 0.7, "frequency_penalty": 0.3, "repetition_penalty": 1.4},
    "no stops yet": {"min_new_tokens": 2, "stop_ids": (12,), "max_new_tokens": 8},
    "support": {"top_k": 3},
}


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_plain_forward_says_what_the_trainer_says(tiny, name):
    row = sample([5, 6, 7, 8], [9, 9, 10, 12], sampling_params=SamplingParams(**CONTRACTS[name]))
    if name == "support":
        inside = [[]] * 4 + [[9, 20, 21], [-1 - 30], [10], [12, 13]]
        splits = torch.tensor([0, *map(len, inside)]).cumsum(0)
        row = dataclasses.replace(
            row, support=Support(torch.tensor([i for ids in inside for i in ids], dtype=torch.int32), splits)
        )

    def logits(ids, places):
        return tiny.model(ids[None]).logits[0, places]

    expected = row.policy_mask.nonzero()[:, 0].tolist()
    with torch.no_grad():
        theirs = score(tiny.model, collate([row]), row.policy_mask[None])
        logprob, entropy = plain_logprobs(logits, row, expected)
    torch.testing.assert_close(logprob, theirs.logprob[0, expected].double(), rtol=0, atol=1e-5)
    torch.testing.assert_close(entropy, theirs.entropy[0, expected].double(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, 3])
def test_rates_are_those_of_the_trainer(schedule, warmup):
    cfg = OptimizerConfig(schedule=schedule, warmup_steps=warmup)
    theirs = [learning_rate(step, 12, 2e-3, cfg) for step in range(12)]
    assert [declared_rate(step, 2e-3, 12, warmup, schedule) for step in range(12)] == pytest.approx(
        theirs, rel=1e-9
    )


@pytest.mark.parametrize("clip", [None, 0.2])
def test_the_gradient_of_values_is_what_autograd_finds(clip):
    """Values that moved less and more than the clip, towards the return and away from it."""
    random = torch.Generator().manual_seed(0)
    value_N, old_N, returns_N = (torch.randn(60, generator=random) for _ in range(3))
    value_N = old_N + 0.3 * (value_N - old_N)
    mask_N = torch.rand(60, generator=random) < 0.8
    value_N.requires_grad_()
    loss = 0.1 * value_loss(
        *(stream_N[None] for stream_N in (value_N, returns_N, old_N, mask_N)), clip, float(mask_N.sum())
    )
    loss.backward()
    expected_N = expected_value_gradients(value_N.detach(), old_N, returns_N, mask_N, 0.1, clip)
    torch.testing.assert_close(expected_N.float(), -value_N.grad)
    assert bool(((expected_N == 0) & mask_N).any()) == (clip is not None)
