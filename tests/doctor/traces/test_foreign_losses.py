"""What another trainer leaves open is no fault, and a fault of its loss is named."""

from dataclasses import replace

import pytest
import torch

from truing.doctor.evidence import changed_step
from truing.doctor.example_steps import example_step, with_optimizer_steps, with_ranks, with_token_gradients
from truing.doctor.formulas.loss import AGGREGATIONS
from truing.doctor.rule_state import examine
from truing.doctor.rules import RULES
from truing.doctor.traces.setup_words import OF_THE_LOSS, declared_setup
from truing.doctor.verdict import Verdict

KL = {"kl_coef": 0.1, "kl_where": "loss", "kl_estimator": "k3", "kl_weight": "none"}


def foreign(step, **setup):
    return replace(step, setup=replace(step.setup, trainer="other", **setup))


def moved(**setup):
    """Return a step whose ratios have moved, beyond the clip at some tokens."""
    step = example_step(setup=setup)
    noise_N = torch.linspace(-0.6, 0.6, len(step.sample_of_token))
    ref_N = step.tokens["new_logprob"] + 0.5 * noise_N.flip(0)
    return changed_step(step, new_logprob=step.tokens["old_logprob"] + noise_N, ref_logprob=ref_N)


def claims(step, code="MSK003"):
    findings = examine(step, [RULES[code]])
    return [(each.claim.verdict, each.claim.what) for each in findings]


@pytest.mark.parametrize("weight", ["none", "detached", "ratio", "score"])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_a_kl_that_is_not_described_may_be_any(weight, estimator):
    meant = {**KL, "kl_weight": weight, "kl_estimator": estimator}
    step = with_token_gradients(moved(**meant))
    assert claims(foreign(step, kl_weight=None, kl_estimator=None)) == []


CHANGES = {
    "without its clip": {"clip_low": 1e9, "clip_high": 1e9},
    "without its lower clip": {"clip_low": 1e9},
    "without its upper clip": {"clip_high": 1e9},
    "without its KL": {"kl_coef": 0.0},
    "with -1 times its KL": {"kl_coef": -0.1},
    "with 10 times its KL": {"kl_coef": 1.0},
    "with a KL by k1": {"kl_estimator": "k1"},
    "with a KL whose ratio is detached": {"kl_weight": "detached"},
    f"with the aggregation token_mean ({AGGREGATIONS['token_mean']})": {"aggregation": "token_mean"},
}


@pytest.mark.parametrize("cause", CHANGES)
def test_what_differs_from_the_declared_loss_is_named(cause):
    trained = with_token_gradients(moved(**KL, **{k: v for k, v in CHANGES[cause].items() if k not in KL}))
    trained = with_token_gradients(foreign(trained, **CHANGES[cause]))
    declared = foreign(trained, **KL, clip_low=0.2, clip_high=0.2, aggregation="sequence_mean")
    ((verdict, what),) = claims(declared)
    assert verdict is Verdict.PROVEN
    assert what == f"the token gradients are those of the declared loss {cause}"


@pytest.mark.parametrize("factor", [2.0, 1024.0])
def test_a_factor_of_the_whole_loss_is_asked_for(factor):
    step = foreign(example_step())
    scaled = changed_step(step, token_gradient=step.tokens["token_gradient"] * factor)
    ((verdict, what),) = claims(foreign(scaled, loss_scale=None))
    assert (verdict, f"{factor:g} times the declared size" in what) == (Verdict.SUSPECT, True)
    assert claims(foreign(scaled, loss_scale=factor)) == []
    assert claims(scaled)[0][0] is Verdict.PROVEN  # declared as 1


def test_ranks_are_those_that_compute():
    """Rows outside of an optimizer step are on no rank."""
    step = example_step(setup={"aggregation": "rank_token_mean", "inner_steps": 2})
    step = with_ranks(with_optimizer_steps(step, {i: i % 2 for i in range(8)}), [i // 4 for i in range(8)])
    mask, gradient = step.tokens["policy_mask"], torch.zeros(len(step.sample_of_token))
    for number in (0, 1):
        for rank in (0, 1):
            rows = [i for i in range(8) if i % 2 == number and i // 4 == rank]
            here = mask & torch.isin(step.sample_of_token, torch.tensor(rows))
            gradient[here] = (step.tokens["advantage"][here] / (2 * here.sum())).float()
    assert claims(foreign(changed_step(step, token_gradient=gradient))) == []


def test_a_row_without_a_forward_counts_in_its_group():
    step = foreign(with_optimizer_steps(example_step(), {1: -1, 5: -1}))
    assert claims(step, "ADV001") == []


def test_a_correction_may_have_one_bound():
    step = foreign(moved(), correction="truncate", correction_low=None, correction_high=2.0)
    assert claims(with_token_gradients(step)) == []


def test_others_of_equal_reward_have_no_declared_quotient():
    rewards = (1.0, 0.0, 0.0, 0.0, 0.2, 0.9, 0.4, 0.4)
    step = foreign(example_step(rewards=rewards), advantage="loo_scaled", advantage_eps=1e-6)
    from truing.doctor.formulas.advantage import Formula, expected_advantages

    groups = [row.group_id for row in step.samples]
    expected_B = torch.tensor(expected_advantages(Formula("loo_scaled", 1e-6), rewards, groups))
    for undivided in (1.0, 1e6):
        advantage_N = expected_B.nan_to_num(undivided)[step.sample_of_token]
        masked_N = advantage_N.masked_fill(~step.tokens["policy_mask"], torch.nan)
        assert claims(changed_step(step, advantage=masked_N), "ADV001") == []


@pytest.mark.parametrize("name", OF_THE_LOSS)
def test_a_part_of_the_loss_without_a_word_leaves_it_without_a_closed_form(name):
    setup, others = declared_setup({"plain": True, name: "other: of its own"}, "a trainer", "its file")
    assert (setup.plain, others) == (None, {name: "other: of its own"})
    assert declared_setup({"plain": True, "mask": "other"}, "a trainer", "its file")[0].plain
