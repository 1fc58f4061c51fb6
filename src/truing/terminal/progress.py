"""What a person sees while a run goes on: what happens in lines, and where it stands in a panel."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.text import Text

from truing.analysis.estimate import pass_at_text, read_estimate, read_pass_at
from truing.doctor.verdict import STRONG_VERDICTS
from truing.errors import TruingError
from truing.terminal.live_region import LiveRegion, has_terminal
from truing.terminal.reader import RunWatcher
from truing.terminal.throttle import Throttle
from truing.types.batch import StepRecord
from truing.utils.format import escape_control

SECONDS_BETWEEN_LINES = 5.0
"""Where there is no terminal to redraw, a line at most this often, and always the first and the last."""

SHARE, PAUSE = 0.01, 0.25
"""Of a run's time, what its panel may take; seconds between two looks."""

UPDATE_LINE_METRICS = {
    "reward/mean": "reward {:.3f}",
    "loss/supervised": "loss {:.3f}",
    "tokens/trained": "{:.0f} learnable tokens",
    "throughput/tokens_per_s": "{:.0f} tokens/s",
}
"""What a line says of an update."""


class EventPrinter:
    """Says what happens in a run, a line or some each, as it happens or as it is on record."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def __call__(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Say one event of the run; kinds without a method here are for the record alone."""
        method = getattr(self, f"on_{kind}", None)
        if method is not None:
            method(**facts)

    def print_text(self, *parts: str | tuple[str, str], style: str = "") -> None:
        """Print texts, each with a style or without; what a terminal might obey is escaped in them."""
        pairs = [(part, "") if isinstance(part, str) else part for part in parts]
        calm = [("\n".join(map(escape_control, text.split("\n"))), each) for text, each in pairs]
        self.console.print(Text.assemble(*calm, style=style), soft_wrap=True)

    def on_note(self, text: str) -> None:
        """What there is to say of the data and the template before the first step."""
        self.print_text(f"note: {text}")

    def on_finding(self, text: str, verdict: str = "", **_: Any) -> None:
        """What checks found before the first step, or a rule in an update."""
        style = "bold red" if verdict in STRONG_VERDICTS else "yellow" if verdict else ""
        self.print_text(f"finding: {text}", style=style)

    def on_fact(self, text: str, **_: Any) -> None:
        """What a rule states of an update, and what is no fault."""
        self.print_text(f"fact: {text}", style="dim")

    def on_boundary(self, stage: str, step: int, lines: Sequence[tuple[str, str]]) -> None:
        """The first updates in words, each line with the rules that guard it."""
        self.print_text(f"  {stage} {step + 1} in words:", style="dim")
        for text, codes in lines:
            self.print_text(f"    {text}  [{codes}]", style="dim")

    def on_incident(self, what: str, text: str, stage: str = "", step: int = -1) -> None:
        """Something that somebody should hear of; of a traceback, its last line."""
        lines = text.strip().splitlines()
        shown = lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1]}"
        where = f"{stage} {step + 1}: " if stage else ""
        self.print_text(f"  {where}{what}: {shown}")

    def on_rollback(self, stage: str, step: int, to: int, reason: str, kept: str, **_: Any) -> None:
        """A guard undid steps."""
        told = f"  {stage} {step + 1}: rolled back to the state after {to} steps: {reason}"
        self.print_text(f"{told}; what was undone is in {kept}")

    def on_reference(self, stage: str, step: int, text: str = "", **_: Any) -> None:
        """A sync of the reference; runs of earlier versions recorded no text."""
        if text:
            self.print_text(f"  {stage} {step + 1}: {text}", style="dim")

    def on_resumed(self, stage: str, step: int, **_: Any) -> None:
        """Where an interrupted run goes on."""
        self.print_text(f"resumed after {step} steps of {stage}")

    def on_stopped(self, run: str, resumable: bool, **_: Any) -> None:
        """An error, or Ctrl-C."""
        told = f"stopped. The run is {run}"
        if resumable:
            told += (
                ": once nothing stands in its way,"
                f" the same again with --out {run} --resume (resume=True) goes on with it"
            )
        self.print_text(told)

    def on_evaluating(self, name: str, tasks: int) -> None:
        """An evaluation begins."""
        self.print_text(f"evaluating {name} on {tasks} tasks …")

    def on_eval(
        self,
        name: str,
        parts: Mapping[str, float],
        failed: Mapping[str, str],
        **told: Any,
    ) -> None:
        """An evaluation ended."""
        mean, _, basis = str(read_estimate(told)).partition(" ")
        rest = "  ".join(f"{part} {value:.3f}" for part, value in parts.items())
        rest += f"  ({len(failed)} tasks failed and count in none of these)" if failed else ""
        self.print_text(f"  {name}: reward ", (mean, "bold"), f" {basis}   {rest}")
        if passing := pass_at_text(read_pass_at(told)):
            self.print_text(f"    {passing}")

    def on_loss(self, stage: str, step: int, label: str, text: str) -> None:
        """What the loss means, where that changed."""
        self.print_text(f"  {stage} {step + 1}: {label}: {text}", style="dim")

    def print_update(
        self, stage: str, done: int, steps: int, metrics: Mapping[str, float], label: str, left: float
    ) -> None:
        """Say an update; what it did not measure is left out."""
        facts = [text.format(metrics[key]) for key, text in UPDATE_LINE_METRICS.items() if key in metrics]
        self.print_text(f"{stage} {done}/{steps}  {'  '.join(facts)}  {label}  {left:.0f} s left")


class ProgressDisplay(EventPrinter):
    """Follows the run in a directory as it is made: lines, and on a terminal the panel below them.

    The panel shows what is on record. The directory is looked into from the first event on: a run that is
    refused tells none, and its directory may be another's.
    """

    def __init__(self, run_dir: Path) -> None:
        super().__init__(Console(stderr=True, highlight=False))
        self.run_dir, self.throttle = run_dir, Throttle(SHARE, PAUSE)
        self.live_region = LiveRegion(self.console) if has_terminal(self.console) else None
        self.watcher: RunWatcher | None = None
        self.started_at = self.printed_at = 0.0
        self.done = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self.watcher is not None:
            self.refresh()  # how it ended
        if self.live_region is not None:
            self.live_region.stop()

    def __call__(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Show one event of the run."""
        super().__call__(kind, facts)
        if not self.throttle.seconds_left:
            self.refresh()

    def refresh(self) -> None:
        """Draw what is on record; where that cannot be read, say so, and train on without a panel."""
        if self.live_region is None:
            return
        with self.throttle.measure():
            try:
                self.watcher = self.watcher or RunWatcher(self.run_dir)
                self.live_region.show(self.watcher.read())
            except TruingError as error:
                self.live_region.stop()
                self.live_region = self.watcher = None
                self.print_text(f"no panel from here on: {error}", style="yellow")

    def on_stage(self, stage: str, steps: int, first_step: int) -> None:
        """A stage begins."""
        self.started_at, self.printed_at, self.done = time.monotonic(), 0.0, 0

    def on_step(self, record: StepRecord, steps: int) -> None:
        """An update was made and recorded."""
        self.done += 1
        now = time.monotonic()
        last = record.step + 1 == steps
        if self.live_region is None and (last or now - self.printed_at > SECONDS_BETWEEN_LINES):
            left = (now - self.started_at) / self.done * (steps - record.step - 1)
            self.print_update(record.stage, record.step + 1, steps, record.metrics, record.loss_label, left)
            self.printed_at = now
