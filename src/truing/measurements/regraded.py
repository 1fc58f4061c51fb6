"""Rewards of some rollouts, computed again."""

import math
from collections.abc import Iterable, Sequence

from truing.errors import RewardError, SkipGroup
from truing.measurements.measurement import Measurement
from truing.rewards import GradeResult, Rewards
from truing.rewards.judge import Judge
from truing.rollouts.collect import GradeFn
from truing.types.batch_facts import Regraded
from truing.types.facts import Facts
from truing.types.rollout import Rollout
from truing.types.sample import Sample
from truing.utils.rng import seed_of

IN_AUDITS, EVERY = 16, 64
"""Rollouts of an audit that are graded again; in other steps one of each ``EVERY``, at least one."""


class RegradedRollouts(Measurement):
    """Rewards of some rollouts and of their turns, computed again by the same functions.

    Not with an LLM judge, nor with functions that judge a collection together: there one rollout alone may
    earn another reward.
    """

    facts = ("regraded",)
    cost = "the rewards of one rollout in 64, in an audit of 16"
    audit = "audit"

    _count = 0

    def before_optimizer_steps(self, minibatch: Sequence[Sample]) -> None:
        """Grade more rollouts in this step."""
        self._count = IN_AUDITS

    def after_step(self) -> Facts:
        """Return both rewards of each rollout that is graded again."""
        step, rewards = self.step, self.step.sampler.env.rewards
        if step.learner.algorithm.source != "rollouts" or not are_graded_alone(rewards):
            return {}
        count = self._count or math.ceil(len(step.samples.rollouts) / EVERY)
        key = (step.recipe.seed, step.stage, step.step, "regraded")
        chosen = rollouts_to_regrade(step.samples.rollouts.values(), count, key)
        return {"regraded": [regraded(each, step.sampler.workers.grade) for each in chosen]} if chosen else {}


def are_graded_alone(rewards: Rewards) -> bool:
    """Return whether no reward is of an LLM judge, or of a function that judges a collection together."""
    judges = (isinstance(fn, Judge) or hasattr(fn, "prepare") for fn, _ in rewards.values())
    return bool(rewards) and not any(judges)


def rollouts_to_regrade(rollouts: Iterable[Rollout], count: int, key: tuple[object, ...]) -> list[Rollout]:
    """Return graded rollouts, in order from the group that the key selects on, so that groups stay whole."""
    graded = [rollout for rollout in rollouts if not math.isnan(rollout.reward)]
    groups = list(dict.fromkeys(rollout.group_id for rollout in graded))
    if not groups:
        return []
    first = groups[seed_of(*key) % len(groups)]
    start = next(i for i, rollout in enumerate(graded) if rollout.group_id == first)
    return [*graded[start:], *graded[:start]][:count]


def regraded(rollout: Rollout, grade: GradeFn) -> Regraded:
    """Return the reward of a rollout, or of its first turn that differs, and that of a second grading."""
    again = _grade(rollout, grade)
    turn = other_turn(rollout, again)
    fact: Regraded = {
        "sample_id": rollout.rollout_id,
        "stored": rollout.reward if turn is None else rollout.turn_rewards[turn],
        "again": _value(again, turn),
    }
    if turn is not None:
        fact["turn"] = turn
    return fact


def _grade(rollout: Rollout, grade: GradeFn) -> GradeResult | None:
    """Return another result; None if there is none this time."""
    try:
        return grade(rollout)
    except (RewardError, SkipGroup):
        return None


def other_turn(rollout: Rollout, again: GradeResult | None) -> int | None:
    """Return the first turn with another reward, where turns are judged."""
    if again is None or len(again.turn_rewards) != len(rollout.turn_rewards):
        return None
    pairs = zip(rollout.turn_rewards, again.turn_rewards, strict=True)
    return next((turn for turn, (one, other) in enumerate(pairs) if one != other), None)


def _value(result: GradeResult | None, turn: int | None) -> float:
    """Return the reward of a result, or that of a turn; NaN without a result."""
    if result is None:
        return math.nan
    if turn is None:
        return result.reward
    return result.turn_rewards[turn] if turn < len(result.turn_rewards) else math.nan
