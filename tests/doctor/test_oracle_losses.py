"""The declared loss and the share of forced prefixes, computed a second time."""

from dataclasses import replace

import pytest
import torch

from truing.config import EpisodeConfig
from truing.doctor.evidence import changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.oracle.force_rate import declared_force_rate
from truing.doctor.oracle.losses import expected_losses
from truing.ops.losses import OBJECTIVES, kl_loss, policy_loss
from truing.rollouts.turn_sources import force_rate


def moved_step(**setup):
    """Return a step whose ratios are off 1, so that the clip and the KL act."""
    step = example_step(setup=setup)
    generator = torch.Generator().manual_seed(0)
    noise_N = 0.4 * torch.randn(len(step.sample_of_token), generator=generator)
    new_N = step.tokens["old_logprob"] + noise_N
    return changed_step(step, new_logprob=new_N, ref_logprob=new_N + noise_N.roll(1))


def table(step, name):
    """Return a stream as rows [B, T]; samples of the example have one length."""
    return step.tokens[name].reshape(len(step.samples), -1)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo", "gspo", "cispo", "reinforce"])
def test_the_policy_loss_is_that_of_the_trainer(name):
    objective = OBJECTIVES[name]
    limits = {each: getattr(objective, each) for each in ("clip_low", "clip_high", "max_ratio")}
    step = moved_step(
        surrogate=objective.surrogate, ratio=objective.ratio, aggregation=objective.aggregation, **limits
    )
    mask_BT, rows = table(step, "policy_mask"), len(step.samples)
    divisor = {
        "token_mean": float(mask_BT.sum()),
        "sequence_mean": float(rows),
        "sequence_sum": float(rows * step.setup.max_new_tokens),
    }[objective.aggregation]
    streams = (table(step, each) for each in ("new_logprob", "old_logprob", "advantage"))
    got = policy_loss(*streams, mask_BT, objective=objective, denominator=divisor)
    assert expected_losses(step)["policy"].value == pytest.approx(float(got), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_the_kl_term_is_that_of_the_trainer(estimator):
    step = moved_step(kl_coef=0.1, kl_where="loss", kl_estimator=estimator, aggregation="token_mean")
    mask_BT = table(step, "kl_mask")
    got = kl_loss(
        *(table(step, each) for each in ("new_logprob", "old_logprob", "ref_logprob")),
        mask_BT,
        estimator=estimator,
        aggregation="token_mean",
        denominator=float(mask_BT.sum()),
    )
    assert expected_losses(step)["kl"].value == pytest.approx(0.1 * float(got), rel=1e-5)


@pytest.mark.parametrize("steps", [0, 3, 10])
def test_the_share_of_forced_prefixes_is_that_of_the_sampler(steps):
    limits = EpisodeConfig(forced_prefix="x", force_rate=0.6, force_steps=steps)
    for step in range(12):
        assert declared_force_rate(step, 0.6, steps) == pytest.approx(force_rate(limits, step))


def test_demonstrations_and_values_of_other_minibatches_do_not_count():
    step = moved_step()
    alone = replace(step, passes=step.passes.select(step.passes.sample < 4, step.lengths))
    mask_N = step.tokens["policy_mask"] & (step.sample_of_token < 4)
    objective = OBJECTIVES["grpo"]
    streams = (table(step, each)[:4] for each in ("new_logprob", "old_logprob", "advantage"))
    got = policy_loss(
        *streams, mask_N.reshape(len(step.samples), -1)[:4], objective=objective, denominator=4.0
    )
    assert expected_losses(alone)["policy"].value == pytest.approx(float(got), rel=1e-5, abs=1e-7)
