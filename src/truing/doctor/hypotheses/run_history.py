"""The record of a run's last stage with a policy loss, for hypotheses on its reward."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from truing.analysis.script_arguments import ScriptArguments, read_arguments
from truing.config import PolicyStage, Recipe, resolve
from truing.doctor.diagnosis import Diagnosis
from truing.doctor.hypotheses.hypothesis import Hypothesis
from truing.doctor.hypotheses.reward_trend import (
    RECENT_UPDATES,
    RewardTrend,
    before_the_fall,
    fault_of,
    reward_trend,
)
from truing.errors import RecordError
from truing.record import Event, RunReader, StepLine
from truing.types.reward_parts import main_parts
from truing.types.sample import SampleFacts


@dataclass(frozen=True, eq=False)
class RunHistory:
    """The record of a run's last stage with a policy loss."""

    run: Path
    recipe: Recipe
    stage: str
    steps: Sequence[StepLine]  # of that stage
    recorded: Sequence[StepLine]  # of all stages
    samples: Sequence[SampleFacts]  # of its last steps
    evaluations: Sequence[Mapping[str, Any]]
    evaluation_seconds: float  # of one, at most; NaN without one
    diagnosis: Diagnosis
    given_in_python: Sequence[str] = ()  # what the recipe alone does not have: env, rewards, tools
    main_parts: Sequence[str] = ()  # of the reward, with the largest weight
    arguments: ScriptArguments | None = None  # of the TRL script that made the run
    blocked: tuple[Hypothesis, ...] = ()  # reasons why no step moved a weight

    @cached_property
    def reward_trend(self) -> RewardTrend:
        """Return the trend of the mean reward."""
        rewards = [value for value in self.series("reward/mean") if math.isfinite(value)]
        return replace(reward_trend(rewards, fault=fault_of(self.diagnosis)), unearned=self.unearned)

    @property
    def unearned(self) -> tuple[str, ...]:
        """Return the parts with the largest weight of which no rollout of the stage earned anything."""
        series = {name: self.series(f"reward_part/{name}") for name in self.main_parts}
        return tuple(name for name, values in series.items() if values and not any(values))

    @property
    def eval_tasks(self) -> int:
        """Return the tasks of an evaluation; a record has their number, also if its recipe gave none."""
        tasks = self.recipe.eval.tasks
        assert tasks is not None
        return tasks

    def before(self, name: str) -> float:
        """Return the mean of a metric before the reward fell; NaN without a fall or values."""
        rewarded = [
            row.metrics for row in self.steps if math.isfinite(row.metrics.get("reward/mean", math.nan))
        ]
        return before_the_fall(self.reward_trend, [metrics.get(name, math.nan) for metrics in rewarded])

    @classmethod
    def from_run(cls, run: Path, diagnosis: Diagnosis) -> "RunHistory":
        """Read a run with its diagnosis."""
        reader = RunReader(run)
        recipe, recorded, events = resolve(reader.run_fact("recipe")), reader.steps(), reader.events()
        stages = [row.stage for row in recorded if isinstance(recipe.stage(row.stage), PolicyStage)]
        if not stages:
            raise RecordError(
                f"{run} has no step with a reward yet",
                expected="reinforce, rloo, grpo or ppo",
                got=recipe.stages,
            )
        steps = [row for row in recorded if row.stage == stages[-1]]
        return cls(
            run,
            recipe,
            stages[-1],
            steps,
            recorded,
            [sample for step in steps[-RECENT_UPDATES:] for sample in reader.table(step).samples],
            [event.payload for event in events if event.kind == "eval"],
            _evaluation_seconds(events),
            diagnosis,
            reader.run_fact("given_in_python"),
            main_parts(reader.run_json().get("judged", {}).get("rewards", {}), recipe.doctor.shaping),
            read_arguments(run),
        )

    def series(self, name: str) -> list[float]:
        """Return the known values of a metric of the stage, by step."""
        return [row.metrics[name] for row in self.steps if name in row.metrics]

    def last(self, name: str) -> float:
        """Return its mean over the last steps; NaN if unknown."""
        values = self.series(name)[-RECENT_UPDATES:]
        return math.fsum(values) / len(values) if values else math.nan


def _evaluation_seconds(events: Sequence[Event]) -> float:
    """Return the shortest time between an evaluation's event and the event before it."""
    passed = (now.time - before.time for before, now in pairwise(events) if now.kind == "eval")
    return min(passed, default=math.nan)


def has_reward_update(run: Path) -> bool:
    """Return whether a run has a step with a reward."""
    reader = RunReader(run)
    recipe = resolve(reader.run_fact("recipe"))
    return any(isinstance(recipe.stage(row.stage), PolicyStage) for row in reader.iter_steps())
