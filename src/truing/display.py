"""What a person sees while a run goes on."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from truing.types import StepRecord

SECONDS_BETWEEN_LINES = 5.0
"""Where there is no terminal to redraw, a line at most this often, and always the first and the last."""


class Display:
    """Follows a run: a bar with the facts of the last step on a terminal, lines of the same elsewhere."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=8),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(compact=True),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.bar = None
        self.started = self.printed = 0.0
        self.done = 0

    def __enter__(self) -> "Display":
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def __call__(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Show one event of the run; kinds without a method here are for the record alone."""
        method = getattr(self, f"on_{kind}", None)
        if method is not None:
            method(**facts)

    def on_note(self, text: str) -> None:
        """What there is to say of the data and the template before the first step."""
        self.console.print(f"note: {text}", markup=False, soft_wrap=True)

    def on_finding(self, text: str, verdict: str = "", **_: Any) -> None:
        """What checks found before the first step, or a rule in an update."""
        style = "bold red" if verdict == "PROVEN" else "yellow" if verdict else None
        self.console.print(f"finding: {text}", markup=False, soft_wrap=True, style=style)

    def on_boundary(self, stage: str, step: int, lines: Sequence[tuple[str, str]]) -> None:
        """The first updates in words, each line with the rules that guard it."""
        self.console.print(f"  {stage} {step + 1} in words:", style="dim")
        for text, codes in lines:
            self.console.print(f"    {text}  [{codes}]", markup=False, soft_wrap=True, style="dim")

    def on_incident(self, what: str, text: str, stage: str = "", step: int = -1) -> None:
        """Something that somebody should hear of; of a traceback, its last line."""
        lines = text.strip().splitlines()
        shown = lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1]}"
        where = f"{stage} {step + 1}: " if stage else ""
        self.console.print(f"  {where}{what}: {shown}", markup=False, soft_wrap=True)

    def on_rollback(self, stage: str, step: int, to: int, reason: str, kept: str, **_: Any) -> None:
        """A guard undid steps."""
        told = f"  {stage} {step + 1}: rolled back to the state after {to} steps: {reason}"
        self.console.print(f"{told}; what was undone is in {kept}", markup=False, soft_wrap=True)
        if self.bar is not None:
            self.progress.update(self.bar, completed=to)

    def on_resumed(self, stage: str, step: int, **_: Any) -> None:
        """Where an interrupted run goes on."""
        self.console.print(f"resumed after {step} steps of {stage}")

    def on_stopped(self, run: str, resumable: bool, **_: Any) -> None:
        """An error, or Ctrl-C."""
        told = f"stopped. The run is {run}"
        if resumable:
            told += (
                ": once nothing stands in its way,"
                f" the same again with --out {run} --resume (resume=True) goes on with it"
            )
        self.console.print(told, markup=False, soft_wrap=True)

    def on_evaluating(self, name: str, tasks: int) -> None:
        """An evaluation begins."""
        self.console.print(f"evaluating {name} on {tasks} tasks …")

    def on_eval(
        self,
        name: str,
        estimate: Mapping[str, Any],
        parts: Mapping[str, float],
        failed: Mapping[str, str],
        **_: Any,
    ) -> None:
        """An evaluation ended."""
        mean, low, high = (estimate[key] for key in ("mean", "low", "high"))
        rest = "  ".join(f"{part} {value:.3f}" for part, value in parts.items())
        rest += f"  ({len(failed)} tasks failed and count in none of these)" if failed else ""
        self.console.print(
            f"  {name}: reward [bold]{mean:.3f}[/] [{low:.3f}, {high:.3f}]   {rest}", soft_wrap=True
        )

    def on_stage(self, stage: str, steps: int, first_step: int) -> None:
        """A stage begins."""
        if self.bar is not None:
            self.progress.remove_task(self.bar)
        self.bar = self.progress.add_task(stage, total=steps, completed=first_step, facts="")
        self.started, self.printed, self.done = time.monotonic(), 0.0, 0

    def on_loss(self, stage: str, step: int, label: str, text: str) -> None:
        """What the loss means, where that changed."""
        self.console.print(
            f"  {stage} {step + 1}: {label}: {text}", markup=False, style="dim", soft_wrap=True
        )

    def on_step(self, record: StepRecord, steps: int) -> None:
        """An update was made and recorded."""
        facts = step_facts(record)
        self.done += 1
        if self.bar is not None:
            self.progress.update(self.bar, completed=record.step + 1, facts=facts)
        now = time.monotonic()
        last = record.step + 1 == steps
        if not self.console.is_terminal and (last or now - self.printed > SECONDS_BETWEEN_LINES):
            left = (now - self.started) / self.done * (steps - record.step - 1)
            line = (
                f"{record.stage} {record.step + 1}/{steps}  {facts}  {record.loss_label}  {left:.0f} s left"
            )
            self.console.print(line, markup=False, soft_wrap=True)
            self.printed = now


def step_facts(record: StepRecord) -> str:
    """The first-screen facts of a step; what it did not measure is left out."""
    shown = {
        "reward/mean": "reward {:.3f}",
        "loss/supervised": "loss {:.3f}",
        "tokens/trained": "{:.0f} learnable tokens",
        "throughput/tokens_per_s": "{:.0f} tokens/s",
    }
    return "  ".join(text.format(record.metrics[key]) for key, text in shown.items() if key in record.metrics)
