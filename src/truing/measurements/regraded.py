"""Rewards of some rollouts, computed a second time."""

import math
from collections.abc import Mapping, Sequence

from truing.measurements.measurement import Measurement
from truing.rewards import Rewards
from truing.rewards.judge import Judge
from truing.rollouts.collect import GradeFn
from truing.types.facts import Regraded
from truing.types.rollout import Rollout
from truing.types.sample import Sample

REGRADED_ATTEMPTS = 16
"""Rollouts whose reward is computed again."""


class RegradedRollouts(Measurement):
    """Rewards of some rollouts, computed again by the same functions."""

    facts = ("regraded",)
    cost = "the rewards of 16 rollouts"
    audit = "audit"

    def before_optimizer_steps(self, minibatch: Sequence[Sample]) -> None:
        """Grade again."""
        sampler = self.step.sampler
        if self.step.learner.algorithm.source == "rollouts":
            rollouts, rewards = self.step.samples.rollouts, sampler.env.rewards
            self.found = {"regraded": regrade_facts(rollouts, rewards, sampler.workers.grade)}


def regrade_facts(rollouts: Mapping[str, Rollout], rewards: Rewards, grade: GradeFn) -> list[Regraded]:
    """Return stored and recomputed rewards of some rollouts.

    There are none with an LLM judge, and none with functions that judge a collection together: one attempt
    alone may earn another reward.
    """
    alone = (not isinstance(fn, Judge) and not hasattr(fn, "prepare") for fn, _ in rewards.values())
    if not rewards or not all(alone):
        return []
    graded = [rollout for rollout in rollouts.values() if not math.isnan(rollout.reward)][:REGRADED_ATTEMPTS]
    return [
        {"sample_id": each.rollout_id, "stored": each.reward, "again": grade(each).reward} for each in graded
    ]
