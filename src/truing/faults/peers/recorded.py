"""A recorded run, read once, as the source of every peer's input."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truing.record import RunReader, SampleRow, StepRow
from truing.record.store import load_rows


@dataclass(frozen=True)
class Update:
    """One update: its record, and its rows."""

    step_row: StepRow
    rows: tuple[SampleRow, ...]

    @property
    def rewards(self) -> list[float]:
        """Return the reward of each attempt with one."""
        by_rollout = {row.sample.rollout_id: row.sample.reward for row in self.rows}
        return [reward for reward in by_rollout.values() if reward == reward]


@dataclass(frozen=True)
class RecordedStage:
    """The last stage of a run; demonstrations precede it and are not RL."""

    recipe: Mapping[str, Any]
    updates: tuple[Update, ...]

    @property
    def stage(self) -> str:
        """Return the algorithm of that stage: grpo, ppo, ..."""
        return self.recipe["stages"][-1]


def read_last_stage(run: Path) -> RecordedStage:
    """Read the last stage of a run directory."""
    reader = RunReader(run)
    recipe = reader.run_fact("recipe")
    lines = [line for line in reader.steps() if line.stage == recipe["stages"][-1]]
    return RecordedStage(recipe, tuple(Update(line, load_rows(run, line)) for line in lines))
