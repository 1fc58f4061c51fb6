"""The progress display of an experiment."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from truing.lab.report.numbers import effect_text, minutes_text
from truing.lab.run.cost import cost_text, total_steps
from truing.lab.run.design import Job
from truing.lab.run.plan import missing_runs
from truing.lab.run.run_pool import RunningProcess
from truing.lab.store.hypothesis_file import Hypothesis
from truing.lab.store.lab import Lab
from truing.lab.store.ledger import Run
from truing.lab.verdicts.own_gain import gain_text
from truing.lab.verdicts.verdict import judge
from truing.utils.format import with_count

SECONDS_BETWEEN_LINES = 30.0
"""Without a terminal: seconds between two lines of progress."""


class LabDisplay:
    """Follows an experiment: a bar for each run on a terminal, lines elsewhere."""

    def __init__(self, hypothesis: Hypothesis, slots: int) -> None:
        self.hypothesis, self.slots = hypothesis, slots
        self.console = Console(stderr=True, highlight=False)
        self.progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[facts]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.total = self.progress.add_task(f"{hypothesis.id}: remaining", total=None, facts="")
        self.bars: dict[str, TaskID] = {}
        self.last_line_at = time.monotonic()
        self.run_seconds: list[float] = []  # of finished runs
        self.first_steps: dict[str, tuple[float, int]] = {}  # by run: when steps were first seen, how many

    def __enter__(self) -> "LabDisplay":
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def __call__(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Show an event."""
        getattr(self, f"on_{kind}")(**facts)

    def on_checking(self, seconds: float) -> None:
        """Show that the exact check runs, and for how long."""
        if seconds and time.monotonic() - self.last_line_at < SECONDS_BETWEEN_LINES:
            return
        self.last_line_at = time.monotonic()
        so_far = f" {minutes_text(seconds / 60)}" if seconds else ""
        text = f"{self.hypothesis.id}: checking the baseline, two steps of each stage …{so_far}"
        self.console.print(text, markup=False, soft_wrap=True)

    def on_cost(self, lab: Lab) -> None:
        """Show what the remaining runs cost."""
        runs = len(missing_runs(lab, self.hypothesis, lab.declaration(self.hypothesis)))
        text = f"{self.hypothesis.id}: {cost_text(lab, runs, self.slots)}; a clear result takes fewer"
        self.console.print(text, markup=False, soft_wrap=True)

    def on_run(self, run: Run, lab: Lab) -> None:
        """Show the result of a run."""
        metric = self.hypothesis.header.metric
        value = run.metrics.get(metric, math.nan)
        result = f"{metric} {value:.3f}" if run.outcome == "finished" else f"{run.outcome}: {run.error}"
        verdict = judge(lab, self.hypothesis)
        effect = (
            f"; {verdict.arm} − baseline {effect_text(verdict.effect, verdict.low, verdict.high)}"
            if verdict.pairs
            else ""
        )
        text = f"  {run.label}, seed {run.seed}: {result}   {verdict.pairs} of {verdict.seeds} pairs{effect}"
        style = None if run.outcome == "finished" else "bold red"
        self.console.print(text, markup=False, soft_wrap=True, style=style)
        if gain := verdict.gains.get(run.label):
            self.console.print(f"  {run.label}: {gain_text(gain)}", markup=False, soft_wrap=True)
        if run.seconds is not None and run.outcome == "finished":
            self.run_seconds.append(run.seconds)

    def on_progress(self, running: Sequence[tuple[Job, RunningProcess]], left: int) -> None:
        """Show the progress of the runs, and the most time that the remaining runs may take."""
        for name in self.bars.keys() - {each.name for _, each in running}:
            self.progress.remove_task(self.bars.pop(name))
        for job, each in running:
            if each.name not in self.bars:
                self.bars[each.name] = self.progress.add_task(
                    str(job), total=total_steps(job.recipe), facts=""
                )
            self.progress.update(
                self.bars[each.name], completed=each.updates, facts=_progress_text(job, each)
            )
        remaining = f"at most {with_count(left, 'run')}{self._time_left(running, left)}"
        if self.console.is_terminal:
            self.progress.update(self.total, facts=remaining)
        elif time.monotonic() - self.last_line_at > SECONDS_BETWEEN_LINES:
            self.last_line_at = time.monotonic()
            progress = "; ".join(f"{job}: {_progress_text(job, each)}" for job, each in running)
            self.console.print(
                f"  {progress}; remaining: {remaining}", markup=False, soft_wrap=True, style="dim"
            )

    def _time_left(self, running: Sequence[tuple[Job, RunningProcess]], count: int) -> str:
        """Return the time left and its source: finished runs, else the steps of running ones."""
        now = time.monotonic()
        run_seconds = self.run_seconds or [
            seconds for job, each in running if (seconds := self._seconds_by_steps(job, each, now))
        ]
        if not run_seconds:
            return ""
        source = "measured" if self.run_seconds else "estimated from the first steps"
        elapsed = sum(now - each.began for _, each in running)
        seconds = max(0.0, math.fsum(run_seconds) / len(run_seconds) * count - elapsed) / max(1, self.slots)
        return f", {minutes_text(seconds / 60)} ({source})"

    def _seconds_by_steps(self, job: Job, running: RunningProcess, now: float) -> float | None:
        """Return the seconds of a whole run by the pace of its steps; None before the second.

        What comes before the first step, mostly an evaluation, is assumed to come once more at the end.
        """
        if not (updates := running.updates):
            return None
        first, before = self.first_steps.setdefault(running.name, (now, updates))
        if updates == before:
            return None
        pace = (now - first) / (updates - before)
        return 2 * (first - running.began) + pace * (total_steps(job.recipe) - before)


def _progress_text(job: Job, running: RunningProcess) -> str:
    """Return the progress of a run as text."""
    total = total_steps(job.recipe)
    if running.updates in (0, total):
        return "evaluating" if running.updates else "loading, then evaluating the base"
    return f"step {running.updates} of {total}"
