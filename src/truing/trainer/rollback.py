"""Rolls the record and the checkpoints of a run back, from an unstable step to a checkpoint of its stage."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from truing.analysis.changed_settings import standing_rollbacks
from truing.config import Recipe, recipe_after_rollbacks
from truing.errors import GuardError
from truing.learner import checkpoint
from truing.learner.checkpoint import CheckpointState
from truing.learner.coefficients import LossCoefficients
from truing.record import RunReader, RunWriter, archive_undone
from truing.trainer.checkpoint_manager import CheckpointManager
from truing.trainer.events import EventLog
from truing.trainer.guard import REPORT_FILE, last_good_step, rollback_report
from truing.utils.atomic_files import write_atomically


@dataclass(frozen=True)
class UnstableStep:
    """A step of a stage that the guard undoes."""

    stage: str
    step: int
    reason: str
    rollbacks: int  # of the stage, so far
    history: Sequence[Mapping[str, float]]  # metrics of the stage's steps so far


class Rollback:
    """Undoes the steps of a stage since its last good checkpoint; a run that did so too often ends."""

    def __init__(
        self, out: Path, checkpoints: CheckpointManager, writer: RunWriter, event_log: EventLog
    ) -> None:
        self.out, self.checkpoints, self.writer, self.event_log = out, checkpoints, writer, event_log

    def undo(self, unstable: UnstableStep) -> CheckpointState:
        """Archive the steps after the last good checkpoint and make it the newest one.

        Returns:
            Its state, with the guard's changes of the coefficients.

        Raises:
            GuardError: The stage had all rollbacks that ``guard.rollbacks`` allows.
        """
        stage, number = unstable.stage, unstable.rollbacks + 1
        guard, past = self.checkpoints.recipe.guard, self._past(stage, unstable.rollbacks)
        assert guard
        used = {rollback["to"] for rollback in past}
        to = self.checkpoints.last_good(stage, last_good_step(unstable.step, guard), used)
        facts = {
            "stage": stage,
            "step": unstable.step,
            "to": to,
            "reason": unstable.reason,
            "factor": guard.learning_rate**unstable.rollbacks,  # of the learning rates of the failed steps
            "recent": unstable.history[-guard.window - 1 :],
        }
        if unstable.rollbacks == guard.rollbacks:
            self._give_up(past, facts)
        archive = archive_undone(self.out, stage, to, f"{stage}-{number}")
        kept = str(archive.relative_to(self.out))
        slower = [f"learning_rate × {guard.learning_rate:g}"] if guard.learning_rate != 1 else []
        self.event_log.log("rollback", **facts, kept=kept, change=[*slower, *guard.change])

        state = checkpoint.read_state(self.checkpoints.path(stage, to))
        state = after_rollbacks(state, self.checkpoints.recipe, number)
        checkpoint.rewind_to(self.checkpoints.folder, state)
        self.writer.truncate_to(stage, to)
        return state

    def _past(self, stage: str, rollbacks: int) -> list[Mapping[str, Any]]:
        """Return the recorded rollbacks of the stage; one that was interrupted and repeated counts once."""
        return standing_rollbacks(RunReader(self.out).events(), stage)[:rollbacks]

    def _give_up(self, past: Sequence[Mapping[str, Any]], last: Mapping[str, Any]) -> None:
        """Write the report of all rollbacks and end the run."""
        report = rollback_report([*past, {**last, "kept": "."}])
        write_atomically(self.out / REPORT_FILE, report.encode())
        self.event_log.log("gave_up", stage=last["stage"], step=last["step"], reason=last["reason"])
        raise GuardError(
            f"{last['stage']} is unstable after {len(past)} rollbacks: {last['reason']}",
            remedy=f"read {self.out / REPORT_FILE}; the undone steps are kept",
        )


def after_rollbacks(state: CheckpointState, recipe: Recipe, rollbacks: int) -> CheckpointState:
    """Return a checkpoint's state after ``rollbacks`` of its stage, with the coefficients of the guard."""
    before, after = (
        recipe_after_rollbacks(recipe, state.stage, number) for number in (state.rollbacks, rollbacks)
    )
    coefficients = LossCoefficients(**state.coefficients).under(before, after)
    return replace(state, rollbacks=rollbacks, coefficients=asdict(coefficients))
