"""The progress of an experiment, in lines."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

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
from truing.terminal.say import say
from truing.utils.format import with_count

SECONDS_BETWEEN_LINES = 30.0
"""Between two lines of progress."""


class LabDisplay:
    """Follows an experiment: a line for each result, and from time to time what runs."""

    def __init__(self, hypothesis: Hypothesis, slots: int) -> None:
        self.hypothesis, self.slots = hypothesis, slots
        self.last_line_at = time.monotonic()
        self.run_seconds: list[float] = []  # of finished runs

    def __call__(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Show an event."""
        getattr(self, f"on_{kind}")(**facts)

    def on_checking(self, seconds: float) -> None:
        """Show that the exact check runs, and for how long."""
        if seconds and time.monotonic() - self.last_line_at < SECONDS_BETWEEN_LINES:
            return
        self.last_line_at = time.monotonic()
        so_far = f" {minutes_text(seconds / 60)}" if seconds else ""
        say(f"{self.hypothesis.id}: checking the baseline, two steps of each stage …{so_far}", err=True)

    def on_cost(self, lab: Lab) -> None:
        """Show what the remaining runs cost."""
        runs = len(missing_runs(lab, self.hypothesis, lab.declaration(self.hypothesis)))
        cost = cost_text(lab, runs, self.slots)
        say(f"{self.hypothesis.id}: {cost}; a clear result takes fewer", err=True)

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
        say(text, "" if run.outcome == "finished" else "bold red", err=True)
        if gain := verdict.gains.get(run.label):
            say(f"  {run.label}: {gain_text(gain)}", err=True)
        if run.seconds is not None and run.outcome == "finished":
            self.run_seconds.append(run.seconds)

    def on_progress(self, running: Sequence[tuple[Job, RunningProcess]], left: int) -> None:
        """Show the progress of the runs, and the most time that the remaining runs may take."""
        time_left = self._time_left(running, left)
        if time.monotonic() - self.last_line_at > SECONDS_BETWEEN_LINES:
            self.last_line_at = time.monotonic()
            progress = "; ".join(f"{job}: {_progress_text(job, each)}" for job, each in running)
            say(f"  {progress}; remaining: at most {with_count(left, 'run')}{time_left}", "dim", err=True)

    def _time_left(self, running: Sequence[tuple[Job, RunningProcess]], count: int) -> str:
        """Return the time left by the finished runs; "" before the first."""
        if not self.run_seconds:
            return ""
        elapsed = sum(time.monotonic() - each.began for _, each in running)
        all_seconds = math.fsum(self.run_seconds) / len(self.run_seconds) * count
        return f", {minutes_text(max(0.0, all_seconds - elapsed) / max(1, self.slots) / 60)}"


def _progress_text(job: Job, running: RunningProcess) -> str:
    """Return the progress of a run as text."""
    total = total_steps(job.recipe)
    if running.steps in (0, total):
        return "evaluating" if running.steps else "loading, then evaluating the base"
    return f"step {running.steps} of {total}"
