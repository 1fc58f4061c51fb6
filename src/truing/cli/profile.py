"""`truing profile`: where the time of a run went."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from truing.clock import PHASES
from truing.errors import RecordError

WIDTH = 24
"""Columns of a bar that stands for all of a step."""


def profile(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the seconds of a step by phase, averaged over the steps of each stage."""
    from truing.record import RunReader

    rows = RunReader(run).steps()
    if not rows:
        raise RecordError(f"{run} has no step yet", remedy="wait for its first update")
    stages: dict[str, list[Mapping[str, float]]] = {}
    for row in rows:
        stages.setdefault(row.stage, []).append(row.seconds)
    if as_json:
        facts = {name: {"steps": len(part), "seconds": mean_seconds(part)} for name, part in stages.items()}
        print(json.dumps(facts))
        return
    for stage, part in stages.items():
        print("\n".join(chart(stage, len(part), mean_seconds(part))))


def mean_seconds(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Seconds of a step by phase, in the order of a step, then what another version may have counted."""
    names = dict.fromkeys([*PHASES, *(name for seconds in steps for name in seconds)])
    sums = {name: sum(seconds.get(name, 0.0) for seconds in steps) for name in names}
    return {name: total / len(steps) for name, total in sums.items() if total}


def chart(stage: str, steps: int, seconds: Mapping[str, float]) -> Iterator[str]:
    """One stage, line by line."""
    whole = sum(seconds.values())
    yield f"{stage}: {whole:.3f} s a step, {steps} steps"
    for name, mean in seconds.items():
        bar = "█" * round(mean / whole * WIDTH)
        yield f"  {name:<9}  {mean:9.3f} s  {mean / whole:6.1%}  {bar:<{WIDTH}}  {PHASES.get(name, '')}"
