"""The checkpoints of a run: which are kept, which one an unstable stage returns to, where a run resumes."""

from collections.abc import Collection, Mapping
from pathlib import Path

from torch import nn

from truing.config import Recipe
from truing.learner import checkpoint
from truing.learner.checkpoint import CheckpointState
from truing.learner.learner import Learner
from truing.trainer.guard import last_good_step


class CheckpointManager:
    """The folder of a run's checkpoints; a guard changes no key of the recipe that is read here."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self.folder, self.recipe = folder, recipe

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

    def last_good(self, stage: str, at_most: int, used: Collection[int] = ()) -> int:
        """Return the step of the newest regular checkpoint up to ``at_most``; 0 is the stage's start.

        Checkpoints in ``used`` are not used again, except the stage's start.
        """
        interval = self.recipe.checkpoint_every
        regular = [
            step for step in checkpoint.saved_steps(self.folder, stage) if interval and step % interval == 0
        ]
        return max((step for step in regular if step <= at_most and step not in used), default=0)

    def due(self, stage: str, step: int) -> bool:
        """Return whether the recipe asks for a checkpoint after ``step`` steps of a stage."""
        interval = self.recipe.checkpoint_every
        return step == self.recipe.stage(stage).steps or bool(interval and step % interval == 0)

    def save(self, learner: Learner, state: CheckpointState) -> CheckpointState:
        """Write a checkpoint and remove older ones of the stage; return its state with the digests."""
        if learner.reference is not None:
            learner.reference.check_unchanged()
        saved = checkpoint.save(
            self.folder, state, learner.checkpoint_tables(), learner.optimizer, learner.ranks
        )
        learner.ranks.on_first("older checkpoints", lambda: self._remove_older(state.stage, state.step))
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
        self._remove_older(newest.stage, newest.step)

    def _remove_older(self, stage: str, step: int) -> None:
        """Remove the stage's checkpoints that neither resume nor the guard needs after ``step`` steps."""
        guard, last = self.recipe.guard, step == self.recipe.stage(stage).steps
        oldest = self.last_good(stage, last_good_step(step, guard)) if guard and not last else step
        for saved_step in checkpoint.saved_steps(self.folder, stage):
            if saved_step < oldest and not (guard and saved_step == 0 and not last):
                checkpoint.remove(self.path(stage, saved_step))

    def load_previous_stage(self, stage: str, parameters: Mapping[str, nn.Parameter]) -> None:
        """Copy the weights with which the stage before ``stage`` ended; the first stage has none."""
        index = self.recipe.stages.index(stage)
        if index:
            previous = self.recipe.stages[index - 1]
            end = self.path(previous, self.recipe.stage(previous).steps)
            checkpoint.load_table(end, "trainable", parameters)
