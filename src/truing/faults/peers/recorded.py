"""A recorded run, read once: what every peer's input is made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truing.record import RunReader, SampleRow, StepRow
from truing.record.store import load_rows


@dataclass(frozen=True)
class Update:
    """One update: its line, and its rows."""

    step_row: StepRow
    rows: tuple[SampleRow, ...]

    @property
    def rewards(self) -> list[float]:
        """The reward of each attempt that has one."""
        by_rollout = {row.sample.rollout_id: row.sample.reward for row in self.rows}
        return [reward for reward in by_rollout.values() if reward == reward]


@dataclass(frozen=True)
class RecordedStage:
    """The last stage of a run; demonstrations come before it and are no RL."""

    recipe: Mapping[str, Any]
    updates: tuple[Update, ...]

    @property
    def stage(self) -> str:
        """What that stage is: grpo, ppo, ..."""
        return self.recipe["stages"][-1]


def read_last_stage(run: Path) -> RecordedStage:
    """A run directory as peers are shown it."""
    reader = RunReader(run)
    recipe = reader.run_json()["recipe"]
    lines = [line for line in reader.steps() if line.stage == recipe["stages"][-1]]
    return RecordedStage(recipe, tuple(Update(line, load_rows(run, line)) for line in lines))
