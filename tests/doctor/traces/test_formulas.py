"""Each formula is told from all others by rows alone."""

import pytest
import torch

from truing.doctor.evidence import changed_step
from truing.doctor.example_steps import example_step, with_token_gradients
from truing.doctor.formulas.advantage import SCALED, TEXTS, Formula, expected_advantages, formulas_of
from truing.doctor.formulas.clip import Clip, clip_of
from truing.doctor.formulas.loss import Fit, Loss, losses_of

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


def test_a_formula_without_a_value_for_most_rows_is_not_found():
    """Transposed groups of two: the deviation of one other is 0."""
    rewards = (1.0, 0.0, 0.5, 0.25, 1.0, 0.0, 0.3, 0.7)
    step = example_step(rewards=rewards)
    noise_B = torch.randn(8, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    advantage_N = noise_B[step.sample_of_token].masked_fill(~step.tokens["policy_mask"], torch.nan)
    assert formulas_of(changed_step(step, advantage=advantage_N)) == set()


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


def moved_step(nats, **setup):
    """A step whose policy has moved at random before its gradients."""
    step = example_step(answers=ANSWERS, rewards=REWARDS, setup={"aggregation": "token_mean", **setup})
    noise_N = nats * torch.randn(len(step.sample_of_token), generator=torch.Generator().manual_seed(3))
    moved_N = step.tokens["old_logprob"] + noise_N
    return with_token_gradients(changed_step(step, new_logprob=moved_N, ref_logprob=moved_N - 0.3))


@pytest.mark.parametrize("kl", ["", "k3"])
def test_the_clip_lies_between_two_ratios(kl):
    declared = {
        "kl_coef": 0.1 if kl else 0.0,
        "kl_where": "loss",
        "kl_estimator": kl or "k3",
        "kl_weight": "none",
    }
    step = moved_step(0.3, clip_low=0.1, clip_high=0.2, **declared)
    clip = clip_of(step, Loss("token_mean", kl), Fit(1.0, 0.1 if kl else 0.0, 0.1))
    assert 1 < clip.kept_high < 1.2 < clip.cut_high < 1.4
    assert 0.8 < clip.cut_low < 0.9 < clip.kept_low < 1
    assert clip.text == (
        f"between ratios of {clip.kept_high:.4g} and {clip.cut_high:.4g} where advantages are positive,"
        f" between ratios of {clip.kept_low:.4g} and {clip.cut_low:.4g} where they are negative"
    )


def test_a_dual_clip_is_told_apart():
    step = moved_step(0.6, clip_low=0.9, clip_high=9.0, dual_clip=2.0, kl_coef=0.0)
    clip = clip_of(step, Loss("token_mean", ""), Fit(1.0, 0.0, 0.0))
    assert clip.cut_dual > 2
    assert clip.text.endswith(f"none has a gradient there from {clip.cut_dual:.3g} on")


def test_what_no_ratio_reached_and_other_losses_are_no_clip():
    loss, fit = Loss("token_mean", ""), Fit(1.0, 0.0, 0.0)
    assert clip_of(moved_step(0.0, kl_coef=0.0), loss, fit).text == "not to be seen: all ratios are 1"
    text = clip_of(moved_step(0.03, clip_low=0.2, clip_high=0.2, kl_coef=0.0), loss, fit).text
    assert text.startswith("none up to a ratio of 1.0")
    step = moved_step(0.3, kl_coef=0.0)
    assert clip_of(changed_step(step, token_gradient=2 * step.tokens["token_gradient"]), loss, fit) is None
    both = Clip(kept_high=1.3).joined(Clip(cut_high=1.2))
    assert both.text == "at no one ratio: 1.3 has a gradient, and 1.2 none where advantages are positive"
