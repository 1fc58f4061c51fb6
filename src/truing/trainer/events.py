"""What a run tells of itself as it goes on: to its record, and to whoever watches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from truing.config import Recipe
from truing.doctor.report.first_updates import SHOWN_UPDATES
from truing.errors import TruingError
from truing.learner.memory_budget import MemoryBudget
from truing.learner.step import Trace
from truing.metrics.loss_label import LossLabel
from truing.record import RunWriter
from truing.trackers import EventDispatcher
from truing.trainer.exit_status import exit_facts
from truing.trainer.incidents import REPORTED_ONCE, incidents
from truing.types.batch import StepRecord
from truing.types.rollout import Rollout
from truing.utils.memory import GB
from truing.utils.rng import seed_of

BOUNDARY_EVERY = 50
"""Of so many later updates, one has its first tokens in words on record."""

EventCallback = Callable[[str, Mapping[str, Any]], None]
"""Told of each thing as it happens: a kind (`start`, `stage`, `step`, `eval`, `note`) and its facts."""


def logs_boundary(seed: int, stage: str, step: int) -> bool:
    """Whether an update has its first tokens told in words: the first ones, and later some by chance."""
    return step < SHOWN_UPDATES or seed_of(seed, "boundary", stage, step) % BOUNDARY_EVERY == 0


class EventLog:
    """Records events and passes them on; knows what was said before."""

    def __init__(
        self, recipe: Recipe, writer: RunWriter, watch: EventCallback, followers: EventDispatcher
    ) -> None:
        self.recipe, self.writer, self.callback, self.followers = recipe, writer, watch, followers
        self.loss_label = ""
        self.reported: set[str] = set()

    def log(self, kind: str, **facts: Any) -> None:
        """Record an event and pass it on."""
        self.writer.write_event(kind, **facts)
        self.notify(kind, facts)

    def notify(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Pass an event on that the record has otherwise, or not at all."""
        self.callback(kind, facts)
        self._log_failures(self.followers.dispatch(kind, facts))

    def close(self) -> None:
        """Let the followers go."""
        self._log_failures(self.followers.close())

    def log_stopped(self, run: Path, error: BaseException) -> None:
        """Tell how a run ended, and let the followers go; what cannot be told is a note of the error."""
        facts = exit_facts(error)
        for tell in (
            lambda: self.writer.write_event("stopped", **facts),
            lambda: self.notify("stopped", {"run": str(run), **facts}),
            self.close,
        ):
            try:
                tell()
            except TruingError as lost:  # the disk is full, say: what stopped the run is still to be heard of
                error.add_note(f"and how it ended could not be told: {lost}")

    def _log_failures(self, told: Sequence[tuple[str, str]]) -> None:
        """Tell of followers that failed."""
        for name, text in told:
            facts = {"what": name, "text": text}
            self.writer.write_event("incident", **facts)
            self.callback("incident", facts)

    def log_boundary(self, stage: str, step: int, lines: Sequence[tuple[str, str]]) -> None:
        """First tokens in words: of the first updates of a stage to everybody, of others to the record."""
        say = self.log if step < SHOWN_UPDATES else self.writer.write_event
        say("boundary", stage=stage, step=step, lines=lines)

    def log_incidents(self, rollouts: Mapping[str, Rollout], stage: str, step: int) -> None:
        """Tell of failed attempts, and the first time of what stays as it is."""
        for kind, text in incidents(rollouts):
            if kind not in self.reported:
                self.log("incident", what=kind, stage=stage, step=step, text=text)
            if kind in REPORTED_ONCE:
                self.reported.add(kind)

    def log_memory(self, memory_budget: MemoryBudget, stage: str, step: int) -> None:
        """Tell that memory ran out in a step, and what fits from now on."""
        text = f"memory ran out; from now on {memory_budget.fits} tokens at once, and this step began anew"
        self.log("memory", **asdict(memory_budget))
        self.log("incident", what="memory", stage=stage, step=step, text=text)

    def log_skipped(self, traces: Sequence[Trace], stage: str, step: int) -> None:
        """Tell of updates that were computed or planned, and not made."""
        for trace in traces:
            if trace.skip_reason:
                self.log("incident", what="held_back", stage=stage, step=step, text=trace.skip_reason)

    def log_over_budget(self, record: StepRecord) -> None:
        """Tell, once, where a step held more than its budget."""
        budget, most = self.recipe.optimizer.memory_bytes, record.metrics.get("memory/peak", 0.0)
        if budget is not None and most * GB > budget and "budget" not in self.reported:
            self.reported.add("budget")
            text = (
                f"a step held {most:.2f} GB, more than optimizer.memory = {budget / GB:g} GB: that bounds"
                " forward and backward, and drawing and what libraries keep come on top; lower it for less"
            )
            self.log("incident", what="budget", stage=record.stage, step=record.step, text=text)

    def log_loss_label(self, label: LossLabel, stage: str, step: int) -> None:
        """Say what the loss means where that changed since the last step."""
        if label.label != self.loss_label:
            self.loss_label = label.label
            self.log("loss", stage=stage, step=step, label=label.label, text=label.text)
