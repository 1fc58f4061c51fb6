"""Each formula is told from all others by rows alone."""

import pytest
import torch

from truing.doctor.evidence import changed_step
from truing.doctor.example_steps import example_step, with_token_gradients
from truing.doctor.formulas.advantage import SCALED, TEXTS, Formula, expected_advantages, formulas_of
from truing.doctor.formulas.loss import losses_of

REWARDS = (1.0, 0.0, 0.5, 0.25, 1.0, 1.0, 0.3, 0.7, 0.2, 0.9, 0.0, 0.4)
ANSWERS = (4, 3, 5, 4, 2, 3, 4, 5, 3, 3, 2, 4)


def step_of(formula):
    step = example_step(answers=ANSWERS, rewards=REWARDS)
    groups = [row.group_id for row in step.samples]
    advantage_N = torch.tensor(expected_advantages(formula, REWARDS, groups))[step.sample_of_token]
    return changed_step(step, advantage=advantage_N.masked_fill(~step.tokens["policy_mask"], torch.nan))


@pytest.mark.parametrize("grouping", ["", "transposed"])
@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("name", TEXTS)
def test_a_formula_is_found_and_no_other(name, negated, grouping):
    if grouping and name in ("reward", "centred", "whitened"):
        return  # these have no groups
    formula = Formula(name, 1e-3 if name in SCALED else 0.0, negated, grouping)
    found = formulas_of(step_of(formula._replace(eps=1e-4 if name in SCALED else 0.0)))
    assert {(each.name, each.negated, each.grouping) for each in found} == {(name, negated, grouping)}


def test_equal_rewards_and_advantages_of_tokens_tell_nothing():
    assert formulas_of(example_step(rewards=(1.0,) * 8)) is None
    step = step_of(Formula("none"))
    of_tokens = step.tokens["advantage"] + torch.linspace(0, 1, len(step.sample_of_token))
    assert formulas_of(changed_step(step, advantage=of_tokens)) is None


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "sequence_total", "prompt_mean"])
@pytest.mark.parametrize("kl", ["", "k1", "k2", "k3"])
def test_a_loss_is_found_with_its_numbers(aggregation, kl):
    declared = {"kl_coef": 0.3, "kl_where": "loss", "kl_estimator": kl} if kl else {}
    setup = {"aggregation": aggregation, **declared}
    step = example_step(answers=ANSWERS, rewards=REWARDS, setup=setup)
    noise_N = 0.5 * torch.randn(len(step.sample_of_token), generator=torch.Generator().manual_seed(1))
    step = with_token_gradients(changed_step(step, ref_logprob=step.tokens["new_logprob"] + noise_N))
    found = {loss: fit for loss, fit in losses_of(step).items() if kl or not loss.kl}
    one = {loss: fit for loss, fit in found.items() if fit.factor == pytest.approx(1, rel=1e-3)}
    ((loss, fit),) = one.items()  # in a single step a mean over all tokens is a sum with a factor
    assert (loss.aggregation, loss.kl) == (aggregation, kl)
    assert fit.factor == pytest.approx(1, rel=1e-4)
    assert fit.kl_coef == pytest.approx(0.3 if kl else 0.0, rel=1e-3)


def test_no_loss_is_found_where_gradients_follow_none():
    step = example_step(answers=ANSWERS, rewards=REWARDS)
    noise_N = torch.rand(len(step.sample_of_token), generator=torch.Generator().manual_seed(2))
    assert losses_of(changed_step(step, token_gradient=step.tokens["token_gradient"] * noise_N)) == {}
    assert losses_of(changed_step(step, without=["token_gradient"])) is None
