"""`truing bisect` and `truing compare`: which part of a trainer is guilty, and where two runs part."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from truing.errors import RecipeError


def bisect_run(
    run: Annotated[Path, typer.Argument(help="A run directory, or what an audit of TRL kept.")],
    other: Annotated[Path | None, typer.Argument(help="Another run: where do the two part?")] = None,
    stage: Annotated[str | None, typer.Option(help="Of which stage the update is.")] = None,
    step: Annotated[
        int | None,
        typer.Option(help="Which update, from 1; by default the first in which something is proven."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Swap each part of a recorded update for a second implementation: exit 1 if one is guilty."""
    if other is not None:
        if stage is not None or step is not None:
            raise RecipeError("two runs are compared whole", got="--stage or --step", expected="neither")
        compare_runs(run, other, as_json=as_json)
        return
    from truing.api import bisect
    from truing.doctor.bisect import guilty, lines

    seen, trials = bisect(run, stage=stage, step=None if step is None else step - 1)
    found = guilty(trials)
    if as_json:
        told = {"run": str(run), "stage": seen.stage, "update": seen.step + 1}
        named = {"guilty": found.part if found else None, "parts": [asdict(each) for each in trials]}
        print(json.dumps(told | named, ensure_ascii=False))
    else:
        console = Console(highlight=False)
        console.print(
            f"{run}: update {seen.step + 1} of {seen.stage}, {len(seen.rows)} rows",
            style="bold",
            soft_wrap=True,
        )
        for text, style in lines(trials):
            console.print(text, style=style, markup=False, soft_wrap=True)
        verdict = f"guilty: {found.part}" if found else "no part differs from its second implementation"
        console.print(verdict, style="bold red" if found else "bold green")
    if found:
        raise typer.Exit(1)


def compare_runs(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    other: Annotated[Path, typer.Argument(help="Another.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Where two runs part: recipe, machine, and the first update, row and token: exit 1 if they do."""
    from truing.record.compare import compare, lines

    found = compare(run, other)
    if as_json:
        print(json.dumps(asdict(found), ensure_ascii=False))
    else:
        console = Console(highlight=False)
        for text, style in lines(found):
            console.print(text, style=style or None, markup=False, soft_wrap=True)
    if found.parted:
        raise typer.Exit(1)
