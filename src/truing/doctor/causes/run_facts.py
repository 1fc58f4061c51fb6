"""What a run directory has beside its steps, and another trainer's log lacks."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

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
    begins: int = 0  # steps of the stage that are of the run it is forked from

    @classmethod
    def read(
        cls, reader: RunReader, recipe: Recipe, recorded: Sequence[StepNumbers], stage: str
    ) -> "RunFacts":
        """Read those of a run, for one of its stages."""
        facts, events = reader.run_json(), reader.events()
        return cls(
            recipe,
            recorded,
            _evaluation_seconds(events),
            reader.run_fact("given_in_python"),
            facts.get("judged", {}).get("rewards", {}),
            facts.get("demonstrated", {}),
            read_arguments(reader.run_dir),
            sum(_undone(event) for event in events if event.payload.get("stage") == stage),
            fork_start(events, stage),
        )


def _evaluation_seconds(events: Sequence[Event]) -> float:
    """Return the shortest time between an evaluation's event and the event before it."""
    passed: Iterator[float] = (
        now.time - before.time for before, now in pairwise(events) if now.kind == "eval"
    )
    return min(passed, default=math.nan)


def _undone(event: Event) -> int:
    """Return the steps that a rollback undid."""
    return event.payload["step"] - event.payload["to"] + 1 if event.kind == "rollback" else 0
