"""What a run directory has beside its steps, and another trainer's log lacks."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from truing.analysis.current_events import fork_start
from truing.analysis.script_arguments import ScriptArguments, read_arguments
from truing.config import Recipe
from truing.record import Event, RunReader
from truing.types.step_table import StepNumbers


@dataclass(frozen=True, eq=False)
class RunFacts:
    """What a run directory has, and a log lacks."""

    recipe: Recipe
    recorded: Sequence[StepNumbers] = ()  # of all stages
    evaluation_seconds: float = math.nan  # of one, at most; NaN without one
    given_in_python: Sequence[str] = ()  # what the recipe alone does not have: env, rewards, tools
    weights: Mapping[str, float] = field(default_factory=dict[str, float])  # of each part of the reward
    demonstrated: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    """What demonstrations earned in the check at the start, by family of tasks."""
    arguments: ScriptArguments | None = None  # of the TRL script that made the run
    rolled_back: int = 0  # steps that the guard undid
    rollbacks: Sequence[str] = ()  # why, once for each time
    begins: int = 0  # steps of the stage that are of the run it is forked from
    right: Mapping[str, Any] = field(default_factory=dict[str, Any])  # answers, by task

    @classmethod
    def read(
        cls, reader: RunReader, recipe: Recipe, recorded: Sequence[StepNumbers], stage: str
    ) -> "RunFacts":
        """Read those of a run, for one of its stages."""
        facts, events = reader.run_json(), reader.events()
        undone = [each for each in events if each.kind == "rollback" and each.payload.get("stage") == stage]
        return cls(
            recipe,
            recorded,
            _evaluation_seconds(events),
            reader.run_fact("given_in_python"),
            facts.get("judged", {}).get("rewards", {}),
            facts.get("demonstrated", {}),
            read_arguments(reader.run_dir),
            sum(each.payload["step"] - each.payload["to"] + 1 for each in undone),
            [each.payload["reason"] for each in undone],
            fork_start(events, stage),
            reader.answers(),
        )


def _evaluation_seconds(events: Sequence[Event]) -> float:
    """Return the shortest time between an evaluation's event and the event before it."""
    passed: Iterator[float] = (
        now.time - before.time for before, now in pairwise(events) if now.kind == "eval"
    )
    return min(passed, default=math.nan)
