"""`truing profile`: where the time of a run went, and what it held."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from truing.errors import RecordError
from truing.utils.format import with_count
from truing.utils.phase_clock import PHASES

if TYPE_CHECKING:
    from truing.record import StepRow

BAR_WIDTH = 24
"""Columns of a bar that stands for all of a step."""

MEMORY = ("memory/peak", "memory/predicted")


def profile(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the seconds of a step by phase, averaged over the steps of each stage, and the memory it held."""
    from truing.record import RunReader

    rows = RunReader(run).steps()
    if not rows:
        raise RecordError(f"{run} has no step yet", remedy="wait for its first update")
    stages: dict[str, list[StepRow]] = {}
    for row in rows:
        stages.setdefault(row.stage, []).append(row)
    found = {stage: stage_profile(part) for stage, part in stages.items()}
    if as_json:
        print(json.dumps(found))
        return
    for stage, of_stage in found.items():
        print("\n".join(chart_lines(stage, of_stage)))
    print(
        "means over steps; evaluations, checkpoints and the start are not in them. What helps: docs/speed.md"
    )


def stage_profile(steps: Sequence["StepRow"]) -> dict[str, Any]:
    """Mean seconds of a step by phase, their sum, and the gigabytes that it held, or was expected to."""
    seconds = mean_seconds([step.seconds for step in steps])
    most = {
        name.removeprefix("memory/"): max(step.metrics[name] for step in steps if name in step.metrics)
        for name in MEMORY
        if any(name in step.metrics for step in steps)
    }
    return {"steps": len(steps), "step": sum(seconds.values()), "seconds": seconds, "memory_gb": most}


def mean_seconds(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Seconds of a step by phase, in the order of a step, then what another version may have counted."""
    names = dict.fromkeys([*PHASES, *(name for seconds in steps for name in seconds)])
    sums = {name: sum(seconds.get(name, 0.0) for seconds in steps) for name in names}
    return {name: total / len(steps) for name, total in sums.items() if total}


def chart_lines(stage: str, found: Mapping[str, Any]) -> Iterator[str]:
    """One stage, line by line."""
    whole, memory = found["step"], found["memory_gb"]
    yield f"{stage}: {whole:.3f} s a step, {with_count(found['steps'], 'step')}"
    for name, mean in found["seconds"].items():
        bar = "█" * round(mean / whole * BAR_WIDTH)
        yield f"  {name:<9}  {mean:9.3f} s  {mean / whole:6.1%}  {bar:<{BAR_WIDTH}}  {PHASES.get(name, '')}"
    if memory:
        told = {"peak": "held at most", "predicted": "forward and backward were expected to come to"}
        yield "  memory: " + ", ".join(f"{told[name]} {value:.2f} GB" for name, value in memory.items())
