"""The plan of an experiment, and the results of its forks, read from their records."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from truing.analysis.current_events import current_evaluations
from truing.config import resolve
from truing.lab.forks.arms import Arm
from truing.lab.forks.result import MOST_PAIRS, ArmResult, results_of
from truing.record import RunReader

PLAN = "plan.json"
FOLDER = "{}-experiment"
"""The folder of the experiment on a run of this name, beside the run."""


@dataclass(frozen=True)
class Plan:
    """An experiment, registered before its first fork is trained."""

    stage: str
    at: int  # steps of the checkpoint that forks begin with
    steps: int  # that each fork trains
    arms: tuple[Arm, ...]
    left_out: tuple[str, ...]  # arms that a fork cannot have, each with the reason
    fork_minutes: float  # of one fork, by the seconds on record
    noise: float  # deviation of a difference by sampling alone, reward units

    @property
    def names(self) -> tuple[str, ...]:
        """The arms of a pair by name; "" is unchanged."""
        return "", *(arm.name for arm in self.arms)

    def fork_name(self, arm: str, pair: int) -> str:
        """Return the name of a fork's folder."""
        return f"arm{self.names.index(arm)}-pair{pair + 1}"

    def results(self, reward_of: Callable[[str], float], pairs: int = MOST_PAIRS) -> list[ArmResult]:
        """Return the result of each arm in the first pairs.

        Args:
            reward_of: returns the reward of a fork by its name; NaN if it is not finished.
            pairs: at most.
        """
        forks = [(arm, pair) for pair in range(pairs) for arm in self.names]
        rewards = {each: reward_of(self.fork_name(*each)) for each in forks}
        return results_of(self.arms, {each: x for each, x in rewards.items() if not math.isnan(x)})


def read_plan(folder: Path) -> Plan:
    """Return the plan of an experiment's folder."""
    facts = json.loads((folder / PLAN).read_bytes())
    arms = tuple(Arm(each["name"], tuple(each["changes"]), each["because"]) for each in facts["arms"])
    return Plan(**facts | {"arms": arms, "left_out": tuple(facts["left_out"])})


def fork_reward(fork: Path, plan: Plan) -> float:
    """Return the reward of a fork after its steps: of its evaluation, or of its last half; NaN before."""
    reader = RunReader(fork)
    rows = [row for row in reader.steps() if row.stage == plan.stage and row.step >= plan.at]
    if len(rows) < plan.steps:
        return math.nan
    if resolve(reader.run_fact("recipe")).eval.tasks:
        found = current_evaluations(reader.events()).get(f"after_{plan.stage}")
        return math.nan if found is None else found["estimate"]["mean"]
    last = [row.metrics["reward/mean"] for row in rows[len(rows) // 2 :] if "reward/mean" in row.metrics]
    return math.fsum(last) / len(last) if last else math.nan
