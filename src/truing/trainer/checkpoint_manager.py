"""The checkpoints of a run: writes and removes them, and finds where a run resumes or a stage returns to."""

import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from torch import nn

from truing.config import Recipe
from truing.distributed.saved_table import SavedTable
from truing.errors import RecordError
from truing.learner import checkpoint
from truing.learner.checkpoint import CheckpointState
from truing.learner.learner import Learner
from truing.measurements.moment_digests import MAX_ENTRIES, moments_of
from truing.measurements.weight_digests import rotating_slice
from truing.models.digest import digest, quick_sum
from truing.trainer.guard import last_good_step
from truing.trainer.kept_checkpoints import best_step, kept_steps, seconds_between


class CheckpointManager:
    """The folder of a run's checkpoints; a guard changes no key of the recipe that is read here."""

    def __init__(self, folder: Path, recipe: Recipe, seconds: Callable[[], float] = time.monotonic) -> None:
        self.folder, self.recipe, self.seconds = folder, recipe, seconds
        self.scores: dict[str, dict[int, float]] = {}  # by stage and step: larger is better
        self.write_seconds: float | None = None  # of the newest checkpoint; None before the first
        self.written_at = seconds()

    def path(self, stage: str, step: int) -> Path:
        """Return the folder of the checkpoint after ``step`` steps of a stage."""
        return self.folder / CheckpointState(stage, step).name

    def saved(self, stage: str, step: int) -> Path | None:
        """Return the folder of a checkpoint; None if there is no such checkpoint, or none is the newest."""
        path = self.path(stage, step)
        return path if path.exists() and checkpoint.find_newest(self.folder) else None

    def newest(self) -> CheckpointState | None:
        """Return the state of the newest checkpoint; None before the first."""
        path = checkpoint.find_newest(self.folder)
        return None if path is None else checkpoint.read_state(path)

    def best(self, stage: str) -> int | None:
        """Return the step of the best evaluation that has a checkpoint; None if there is none."""
        return best_step(self.scores.get(stage, {}), checkpoint.saved_steps(self.folder, stage))

    def last_good(self, stage: str, at_most: int, used: Collection[int] = ()) -> int:
        """Return the step of the newest regular checkpoint up to ``at_most``; 0 is the stage's start.

        With ``checkpoint_every = "auto"`` none is regular: where a guard returns to may not depend on the
        time that steps take. Checkpoints in ``used`` are not used again, except the stage's start.
        """
        steps = checkpoint.saved_steps(self.folder, stage)
        regular = [step for step in steps if self._is_regular(step)]
        return max((step for step in regular if step <= at_most and step not in used), default=0)

    def due(self, stage: str, step: int, *, evaluated: bool = False) -> bool:
        """Return whether a checkpoint is written after ``step`` steps of a stage.

        Args:
            stage: of the recipe.
            step: steps that are done.
            evaluated: whether the policy was just evaluated: the best one so far is saved.
        """
        interval = self.recipe.checkpoint_every
        if step == self.recipe.stage(stage).steps:
            return True
        if interval == "auto":
            waited = self.seconds() - self.written_at >= seconds_between(self.write_seconds)
        else:
            waited = self._is_regular(step)
        if waited or not evaluated or interval == 0:
            return waited
        saved = {*checkpoint.saved_steps(self.folder, stage), step}
        return best_step(self.scores.get(stage, {}), saved) == step

    def save(self, learner: Learner, state: CheckpointState) -> CheckpointState:
        """Write a checkpoint and remove those that are not kept; return its state with the digests.

        Raises:
            RecordError: It cannot be written, or has other weights or moments than the learner.
        """
        if learner.reference is not None:
            learner.reference.check_unchanged()
        start = self.seconds()
        saved = checkpoint.save(
            self.folder, state, learner.checkpoint_tables(), learner.optimizer, learner.ranks
        )
        _check_saved(self.folder, learner, saved)
        learner.ranks.on_first("older checkpoints", lambda: self._remove_unneeded(state.stage))
        self.written_at = self.seconds()
        self.write_seconds = self.written_at - start
        return saved

    def remove_leftovers(self, newest: CheckpointState | None) -> None:
        """Remove what a kill left: unfinished, later and unneeded older checkpoints."""
        checkpoint.remove_unfinished(self.folder)
        if newest is None:
            return
        for stage in self.recipe.stages[self.recipe.stages.index(newest.stage) :]:
            for step in checkpoint.saved_steps(self.folder, stage):
                if stage != newest.stage or step > newest.step:
                    checkpoint.remove(self.path(stage, step))
        self._remove_unneeded(newest.stage)

    def _is_regular(self, step: int) -> bool:
        """Return whether each run of the recipe has a checkpoint after this step of a stage."""
        interval = self.recipe.checkpoint_every
        return interval != "auto" and interval > 0 and step % interval == 0

    def _remove_unneeded(self, stage: str) -> None:
        """Remove the checkpoints of a stage that are not kept."""
        saved, steps = checkpoint.saved_steps(self.folder, stage), self.recipe.stage(stage).steps
        is_auto = self.recipe.checkpoint_every == "auto"
        kept = kept_steps(
            saved,
            steps,
            self.recipe.checkpoint_limit,
            planned=[step for step in saved if step and (is_auto or step == steps or self._is_regular(step))],
            best=self.best(stage),
            needed=self._needed_by_guard(stage, saved),
        )
        for step in saved:
            if step not in kept:
                checkpoint.remove(self.path(stage, step))
        self._check_best(stage, saved)

    def _check_best(self, stage: str, saved: Collection[int]) -> None:
        """Raise if the checkpoint with the largest score was removed, or is not the best."""
        if self.recipe.checkpoint_limit == 1:  # the newest alone is kept
            return
        scores = {step: score for step, score in self.scores.get(stage, {}).items() if step in saved}
        best = self.best(stage)
        if scores and (best is None or scores[best] < max(scores.values())):
            raise RecordError(
                f"the best checkpoint of {stage} is not the one with the largest score",
                got="none" if best is None else f"step {best}, {scores[best]:g}",
                expected=f"{max(scores.values()):g}, of {len(scores)} evaluations",
                remedy="look for code that chooses or removes checkpoints",
            )

    def _needed_by_guard(self, stage: str, saved: Collection[int]) -> set[int]:
        """Return the steps that a guard may return to, also if the stage is made longer at its end."""
        guard = self.recipe.guard
        if not guard:
            return set()
        oldest = self.last_good(stage, last_good_step(max(saved), guard))
        return {step for step in saved if step == 0 or (step >= oldest and self._is_regular(step))}

    def load_previous_stage(self, stage: str, parameters: Mapping[str, nn.Parameter]) -> None:
        """Copy the weights with which the stage before ``stage`` ended; the first stage has none."""
        index = self.recipe.stages.index(stage)
        if index:
            previous = self.recipe.stages[index - 1]
            end = self.path(previous, self.recipe.stage(previous).steps)
            checkpoint.load_table(end, "trainable", parameters)


def _check_saved(folder: Path, learner: Learner, saved: CheckpointState) -> None:
    """Raise unless weights and moments of a checkpoint are those that the last step left.

    A resumed run would show it (OPT002, OPT010); after the last step nothing else would. The files are read
    back, another slice each time; those of several ranks are in shards, and are not.
    """
    tables = learner.checkpoint_tables()
    for name, table in tables.items():
        if (own := digest(table)) != saved.digests[name]:
            raise _not_as_left(saved, _contents(name), saved.digests[name][:12], own[:12])
    if learner.ranks.size == 1:
        trained = {name: each for group in learner.parameter_groups() for name, each in group.items()}
        for name, table in {**tables, "optimizer": moments_of(learner.optimizer, trained)}.items():
            both = SavedTable(folder / saved.name, name), table
            written, own = (quick_sum(rotating_slice(each, saved.step, MAX_ENTRIES)) for each in both)
            if written != own:
                raise _not_as_left(saved, _contents(name), written, own)


def _contents(table: str) -> str:
    """Return what a table of a checkpoint holds, in words."""
    return {"trainable": "weights", "optimizer": "moments"}.get(table, f"weights of the {table}")


def _not_as_left(saved: CheckpointState, what: str, written: str, own: str) -> RecordError:
    return RecordError(
        f"the checkpoint {saved.name} has other {what} than the last step left",
        got=f"digest {written}",
        expected=f"digest {own}",
        remedy="look for what copies or converts tensors on their way to the file; do not use this"
        " checkpoint",
    )
