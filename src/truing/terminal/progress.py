"""Shows the progress of a run: events as lines, and its status in a panel."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.text import Text

from truing.analysis.estimate import pass_at_text, read_estimate, read_pass_at
from truing.doctor.verdict import STRONG_VERDICTS
from truing.errors import TruingError
from truing.terminal.live_region import LiveRegion, has_terminal
from truing.terminal.reader import RunWatcher
from truing.terminal.run_result import command_name
from truing.terminal.throttle import Throttle
from truing.terminal.waiting import Waiting
from truing.types.step_table import StepTable
from truing.utils.format import escape_lines, summary_of_error, with_count

SECONDS_BETWEEN_LINES = 5.0
"""Minimum seconds between lines of steps without a terminal; the first and last are always printed."""

SHARE, PAUSE = 0.01, 0.25
"""The maximum share of a run's time for the panel, and the minimum seconds between redraws."""

STEP_LINE_METRICS = {
    "reward/mean": "reward {:.3f}",
    "loss/supervised": "loss {:.3f}",
    "tokens/trained": "{:.0f} trained tokens",
    "throughput/tokens_per_s": "{:.0f} tokens/s",
}
"""Metrics in the line of a step."""


PART = "reward_part/"
"""Metrics of the parts of the reward, which follow it if there are several."""


class EventPrinter:
    """Prints the events of a run, live or from its record, in a line or a few each."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.waiting: Waiting | None = None  # of the evaluation that runs

    def __call__(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Print one event; kinds without a method are not printed."""
        method = getattr(self, f"on_{kind}", None)
        if method is not None:
            method(**facts)

    def print_text(self, *parts: str | tuple[str, str], style: str = "") -> None:
        """Print texts with optional styles; control characters are escaped."""
        pairs = [(part, "") if isinstance(part, str) else part for part in parts]
        escaped = [(escape_lines(text), each) for text, each in pairs]
        self.console.print(Text.assemble(*escaped, style=style), soft_wrap=True)

    def on_note(self, text: str) -> None:
        """Print a note about data or template before the first step."""
        self.print_text(f"note: {text}")

    def on_finding(self, text: str, verdict: str = "", **_: Any) -> None:
        """Print a finding of the checks before the first step, or of a rule, whose text names its verdict."""
        if not verdict:
            self.print_text(f"finding: {text}")
        else:
            self.print_text(text, style="bold red" if verdict in STRONG_VERDICTS else "yellow")

    def on_fact(self, text: str, **_: Any) -> None:
        """Print a fact that a rule states of a step."""
        self.print_text(text, style="dim")

    def on_incident(self, what: str, text: str, stage: str = "", step: int = -1) -> None:
        """Print an incident; of a traceback, its first and last line, and the remedy."""
        where = f"{stage} {step + 1}: " if stage else ""
        self.print_text(f"  {where}{what}: {summary_of_error(text)}")

    def on_rollback(
        self, stage: str, step: int, to: int, reason: str, kept: str, change: Sequence[str], **_: Any
    ) -> None:
        """Print a rollback, and what it changed."""
        text = f"  {stage} {step + 1}: rolled back to the state after {to} steps: {reason}"
        self.print_text(f"{text}; undone steps: {kept}; from here on {', '.join(change)}")

    def on_reference(self, stage: str, step: int, text: str, **_: Any) -> None:
        """Print a sync of the reference."""
        self.print_text(f"  {stage} {step + 1}: {text}", style="dim")

    def on_resumed(self, stage: str, step: int, **_: Any) -> None:
        """Print where an interrupted run resumes."""
        self.print_text(f"resumed after {step} steps of {stage}")

    def on_longer(self, text: str, **_: Any) -> None:
        """Print that a stage has more steps than it began with, and what that changes."""
        self.print_text(text)

    def on_best(self, text: str, **_: Any) -> None:
        """Print the best checkpoint of a stage by its evaluations."""
        self.print_text(f"  {text}")

    def on_stopped(self, run: str, resumable: bool, **_: Any) -> None:
        """Print that the run stopped by an error or Ctrl-C."""
        remedy = f". Resume with --out {quote(run)} --resume (resume=True)" if resumable else ""
        self.print_text(f"stopped: {run}{remedy}")

    def on_evaluating(self, name: str, tasks: int) -> None:
        """Print the start of an evaluation."""
        self.print_text(f"evaluating {name} on {tasks} tasks …")
        self.waiting = Waiting("  {done} of {total} rollouts", self.print_text)

    def on_evaluated(self, ended: int, answers: int) -> None:
        """Print how many rollouts of an evaluation have ended, and the time left, from time to time."""
        if self.waiting is not None:
            self.waiting(ended, answers)

    def on_eval(
        self,
        name: str,
        parts: Mapping[str, float],
        failed: Mapping[str, str],
        **payload: Any,
    ) -> None:
        """Print the result of an evaluation."""
        mean, _, basis = str(read_estimate(payload)).partition(" ")
        rest = "  ".join(f"{part} {value:.3f}" for part, value in parts.items())
        rest += f"  ({with_count(len(failed), 'task')} failed, not counted)" if failed else ""
        self.print_text(f"  {name}: reward ", (mean, "bold"), f" {basis}   {rest}")
        if passing := pass_at_text(read_pass_at(payload)):
            self.print_text(f"    {passing}")

    def on_loss(self, stage: str, step: int, label: str, text: str) -> None:
        """Print the meaning of the loss when it changes."""
        self.print_text(f"  {stage} {step + 1}: {label}: {text}", style="dim")

    def print_step(
        self, stage: str, done: int, steps: int, metrics: Mapping[str, float], label: str, left: float
    ) -> None:
        """Print a step; missing metrics are left out."""
        facts = [text.format(metrics[key]) for key, text in STEP_LINE_METRICS.items() if key in metrics]
        parts = [f"{key.removeprefix(PART)} {metrics[key]:.3f}" for key in metrics if key.startswith(PART)]
        if len(parts) > 1:
            facts.insert(1, f"({', '.join(parts)})")
        self.print_text(f"{stage} {done}/{steps}  {'  '.join(facts)}  {label}  {left:.0f} s left")


class ProgressDisplay(EventPrinter):
    """Shows a run while it trains: lines and, on a terminal, the panel below them.

    The panel shows the record, from the event ``start`` on: before it, the directory is empty or belongs to
    another run.
    """

    def __init__(self, run_dir: Path) -> None:
        super().__init__(Console(stderr=True, highlight=False))
        self.run_dir, self.throttle = run_dir, Throttle(SHARE, PAUSE)
        self.live_region = LiveRegion(self.console) if has_terminal(self.console) else None
        self.watcher: RunWatcher | None = None
        self.started_at = self.printed_at = 0.0
        self.done = 0
        self.started = self.tokens_told = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.refresh()  # shows the final state
        if self.live_region is not None:
            self.live_region.stop()

    def __call__(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Show one event of the run."""
        super().__call__(kind, facts)
        if not self.throttle.seconds_left:
            self.refresh()

    def refresh(self) -> None:
        """Draw the record; if it cannot be read, print why and continue without a panel."""
        if self.live_region is None or not self.started:
            return
        with self.throttle.measure():
            try:
                self.watcher = self.watcher or RunWatcher(self.run_dir)
                self.live_region.show(self.watcher.read())
            except TruingError as error:
                self.live_region.stop()
                self.live_region = self.watcher = None
                self.print_text(f"panel off: {error}", style="yellow")

    def on_start(self, run: str) -> None:
        """Show the record from here on."""
        self.started = True

    def on_boundary(self, **_: Any) -> None:
        """Print, once, the command that prints the first tokens of samples."""
        if not self.tokens_told:
            self.print_text(
                f"  first tokens of samples: {command_name()} tokens {quote(str(self.run_dir))} --first",
                style="dim",
            )
        self.tokens_told = True

    def on_stage(self, stage: str, steps: int, first_step: int) -> None:
        """Start a stage."""
        self.started_at, self.printed_at, self.done = time.monotonic(), 0.0, 0

    def on_step(self, record: StepTable, steps: int) -> None:
        """Print a recorded step."""
        self.done += 1
        now = time.monotonic()
        last = record.step + 1 == steps
        if self.live_region is None and (last or now - self.printed_at > SECONDS_BETWEEN_LINES):
            left = (now - self.started_at) / self.done * (steps - record.step - 1)
            self.print_step(record.stage, record.step + 1, steps, record.metrics, record.loss_label, left)
            self.printed_at = now
