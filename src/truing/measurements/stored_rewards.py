"""Rewards as they are stored, beside those that graders returned for the same rollouts."""

import math
from collections.abc import Mapping

from truing.measurements.measurement import Measurement
from truing.measurements.regraded import other_turn
from truing.rollouts.grade_log import Grading
from truing.types.batch_facts import Graded, Regraded
from truing.types.facts import Facts
from truing.types.rollout import Rollout


class StoredRewards(Measurement):
    """The reward of each sampled rollout, and of its turns, beside what its grader returned for it."""

    facts = ("graded",)
    cost = "nothing: a comparison of numbers"

    def after_step(self) -> Facts:
        """Return both rewards of all rollouts, if one differs."""
        step = self.step
        if step.learner.algorithm.source != "rollouts":
            return {}
        rollouts = step.samples.rollouts
        taken = step.policy.ranks.gather("the results of graders", step.sampler.grades.take(rollouts))
        gradings = {name: grading for part in taken for name, grading in part.items()}
        rows = step.table.samples if step.table else ()
        recorded = {each.rollout_id: each.reward for each in rows}
        pairs = [
            _pair(rollout, recorded.get(name, rollout.reward), gradings)
            for name, rollout in rollouts.items()
            if not math.isnan(rollout.reward)
        ]
        differ = any(each["stored"] != each["again"] for each in pairs)
        fact: Graded = {"rollouts": len(pairs), "pairs": pairs if differ else []}
        given = {name: (each.task_id, each.text) for name, each in gradings.items()}
        own = {name: (each.task.task_id, each.text) for name, each in rollouts.items()}
        if other := [name for name, each in given.items() if each != own[name]]:
            fact["other_input"], fact["input_of"] = len(other), other[0]
            fact["input"] = ": ".join(given[other[0]])
        return {"graded": fact}


def _pair(rollout: Rollout, stored: float, gradings: Mapping[str, Grading]) -> Regraded:
    """Return the stored and the returned reward of a rollout, or of its first turn that differs."""
    if rollout.rollout_id not in gradings:
        return {"sample_id": rollout.rollout_id, "stored": stored, "again": math.nan}
    result = gradings[rollout.rollout_id].result
    turn = other_turn(rollout, result)
    if turn is None or stored != result.reward:
        return {"sample_id": rollout.rollout_id, "stored": stored, "again": result.reward}
    return {
        "sample_id": rollout.rollout_id,
        "turn": turn,
        "stored": rollout.turn_rewards[turn],
        "again": result.turn_rewards[turn],
    }
