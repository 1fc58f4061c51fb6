"""The event log: writes events to the record and passes them to the callback, trackers and alerts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from truing.config import Recipe
from truing.doctor.report.first_steps import SHOWN_STEPS
from truing.errors import TruingError
from truing.learner.memory_budget import MemoryBudget
from truing.learner.optimizer_step import OptimizerStep
from truing.metrics.loss_label import LossLabel
from truing.record import Event, RunWriter
from truing.trackers import EventDispatcher
from truing.trainer.exit_status import exit_facts
from truing.trainer.incidents import REPORTED_ONCE, incidents
from truing.types.rollout import Rollout
from truing.types.step_table import StepTable
from truing.utils.memory import GB
from truing.utils.rng import seed_of

BOUNDARY_EVERY = 50
"""Of the later steps, one in this many records its first tokens as text."""

STOP = "stop"
"""What an event callback returns to end the run after the current step: saved, and evaluated."""

EventCallback = Callable[[str, Mapping[str, Any]], Literal["stop"] | None]
"""Called with each event: its kind (`start`, `note`, `stage`, `step`, `eval`, …) and its facts."""


def logs_boundary(seed: int, stage: str, step: int) -> bool:
    """Return whether a step logs its first tokens as text: the first steps, and a random few later."""
    return step < SHOWN_STEPS or seed_of(seed, "boundary", stage, step) % BOUNDARY_EVERY == 0


class EventLog:
    """Records events and passes them on; remembers what it reported, to report some things once."""

    def __init__(
        self, recipe: Recipe, writer: RunWriter, callback: EventCallback, dispatcher: EventDispatcher
    ) -> None:
        self.recipe, self.writer, self.callback, self.dispatcher = recipe, writer, callback, dispatcher
        self.loss_label = ""
        self.reported: set[str] = set()
        self.stop_requested = False

    def log(self, kind: str, **facts: Any) -> None:
        """Record an event and pass it on."""
        self.writer.write_event(kind, **facts)
        self.notify(kind, facts)

    def log_once(self, texts: Sequence[tuple[str, str]], recorded: Sequence[Event]) -> None:
        """Log texts, each with its kind; a resumed run has recorded most of them, and only passes them on."""
        known = {(event.kind, event.payload.get("text")) for event in recorded}
        for kind, text in texts:
            if (kind, text) in known:
                self.notify(kind, {"text": text})
            else:
                self.log(kind, text=text)

    def notify(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Pass an event on without recording it here: the record has it in another form, or not at all."""
        self.stop_requested |= self.callback(kind, facts) == STOP
        self._log_failures(self.dispatcher.dispatch(kind, facts))

    def close(self) -> None:
        """Close trackers and alerts."""
        self._log_failures(self.dispatcher.close())

    def log_stopped(self, run: Path, error: BaseException) -> None:
        """Log why a run stopped and close; a failure to do so becomes a note of the error."""
        facts = exit_facts(error)
        for action in (
            lambda: self.writer.write_event("stopped", **facts),
            lambda: self.notify("stopped", {"run": str(run), **facts}),
            self.close,
        ):
            try:
                action()
            except TruingError as failure:  # such as a full disk; the first error must still be raised
                error.add_note(f"and the event that the run stopped could not be logged: {failure}")

    def _log_failures(self, failures: Sequence[tuple[str, str]]) -> None:
        """Log trackers and alerts that failed, each as a name and a text."""
        for name, text in failures:
            facts = {"what": name, "text": text}
            self.writer.write_event("incident", **facts)
            self.callback("incident", facts)

    def log_boundary(self, stage: str, step: int, lines: Sequence[tuple[str, str]]) -> None:
        """Log first tokens as text; only those of a stage's first steps are passed on."""
        write = self.log if step < SHOWN_STEPS else self.writer.write_event
        write("boundary", stage=stage, step=step, lines=lines)

    def log_step(
        self,
        record: StepTable,
        rollouts: Mapping[str, Rollout],
        engine_incidents: Sequence[str],
        optimizer_steps: Sequence[OptimizerStep],
        label: LossLabel,
    ) -> None:
        """Log what a recorded step and its rollouts had out of the ordinary."""
        stage, step = record.stage, record.step
        self.log_incidents(rollouts, stage, step)
        for text in engine_incidents:
            self.log("incident", what="engine", stage=stage, step=step, text=text)
        for each in optimizer_steps:
            if each.skip_reason:
                self.log("incident", what="held_back", stage=stage, step=step, text=each.skip_reason)
        self.log_over_budget(record)
        if label.label != self.loss_label:
            self.loss_label = label.label
            self.log("loss", stage=stage, step=step, label=label.label, text=label.text)

    def log_incidents(self, rollouts: Mapping[str, Rollout], stage: str, step: int) -> None:
        """Log the incidents of a step's rollouts; kinds in ``REPORTED_ONCE`` only the first time."""
        for kind, text in incidents(rollouts):
            if kind not in self.reported:
                self.log("incident", what=kind, stage=stage, step=step, text=text)
            if kind in REPORTED_ONCE:
                self.reported.add(kind)

    def log_memory(self, memory_budget: MemoryBudget, stage: str, step: int) -> None:
        """Log that memory ran out in a step, and the new budget."""
        text = (
            f"memory ran out: repeated with at most {memory_budget.fits} tokens per micro-batch from now on"
        )
        self.log("memory", **asdict(memory_budget))
        self.log("incident", what="memory", stage=stage, step=step, text=text)

    def log_over_budget(self, record: StepTable) -> None:
        """Log, once, that the peak of a step is above optimizer.memory."""
        budget, peak = self.recipe.optimizer.memory_bytes, record.metrics.get("memory/peak", 0.0)
        if budget is not None and peak * GB > budget and "budget" not in self.reported:
            self.reported.add("budget")
            text = (
                f"a step used up to {peak:.2f} GB, above optimizer.memory = {budget / GB:g} GB: the budget"
                " covers forward and backward; sampling and libraries need more. Lower it to use less"
            )
            self.log("incident", what="budget", stage=record.stage, step=record.step, text=text)
