"""`truing profile`: the time of a run by phase, and its peak memory."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from truing.utils.format import with_count
from truing.utils.phase_clock import PHASES

if TYPE_CHECKING:
    from truing.record import StepLine

BAR_WIDTH = 24
"""Columns of a bar for a whole step."""

MEMORY = ("memory/peak", "memory/predicted")


def profile(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the mean seconds of a step by phase, per stage, and the peak memory."""
    from truing.cli.inspect.lost_steps import warn_of_lost_steps
    from truing.record import RunReader

    warn_of_lost_steps(run)
    rows = (reader := RunReader(run)).steps()
    if not rows:
        raise reader.no_step_error()
    stages: dict[str, list[StepLine]] = {}
    for row in rows:
        stages.setdefault(row.stage, []).append(row)
    profiles = {stage: stage_profile(part) for stage, part in stages.items()}
    if as_json:
        print(json.dumps(profiles))
        return
    for stage, of_stage in profiles.items():
        print("\n".join(chart_lines(stage, of_stage)))
    print("means over steps, without evaluations, checkpoints and startup. Speed: `truing explain speed`")


def stage_profile(steps: Sequence["StepLine"]) -> dict[str, Any]:
    """Return mean seconds of a step by phase, their sum, and peak and predicted memory in GB."""
    seconds = mean_seconds([step.seconds for step in steps])
    peaks = {
        name.removeprefix("memory/"): max(step.metrics[name] for step in steps if name in step.metrics)
        for name in MEMORY
        if any(name in step.metrics for step in steps)
    }
    return {"steps": len(steps), "step": sum(seconds.values()), "seconds": seconds, "memory_gb": peaks}


def mean_seconds(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return seconds of a step by phase, in order, then phases that only other versions record."""
    names = dict.fromkeys([*PHASES, *(name for seconds in steps for name in seconds)])
    sums = {name: sum(seconds.get(name, 0.0) for seconds in steps) for name in names}
    return {name: total / len(steps) for name, total in sums.items() if total}


def chart_lines(stage: str, stage_facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of one stage."""
    total, memory = stage_facts["step"], stage_facts["memory_gb"]
    yield f"{stage}: {total:.3f} s a step, {with_count(stage_facts['steps'], 'step')}"
    for name, mean in stage_facts["seconds"].items():
        bar = "█" * round(mean / total * BAR_WIDTH)
        yield f"  {name:<9}  {mean:9.3f} s  {mean / total:6.1%}  {bar:<{BAR_WIDTH}}  {PHASES.get(name, '')}"
    if memory:
        labels = {"peak": "peak", "predicted": "predicted for forward and backward"}
        yield "  memory: " + ", ".join(f"{labels[name]} {value:.2f} GB" for name, value in memory.items())
