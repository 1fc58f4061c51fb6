"""`truing bisect` and `truing compare`: which part of a trainer is guilty, and where two runs part."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from truing.errors import RecipeError
from truing.utils.format import with_count

if TYPE_CHECKING:
    from truing.doctor.bisect import Trial
    from truing.doctor.evidence import Step
    from truing.doctor.verdict import Finding


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
    """Swap each part of an update for a second implementation: exit 1 for a guilty part, or any finding."""
    if other is not None:
        if stage is not None or step is not None:
            raise RecipeError("two runs are compared whole", got="--stage or --step", expected="neither")
        compare_runs(run, other, as_json=as_json)
        return
    if _bisect(run, stage, None if step is None else step - 1, as_json):
        raise typer.Exit(1)


def _bisect(run: Path, stage: str | None, step: int | None, as_json: bool) -> bool:
    """Print what each swap came to; whether a part is guilty, or rules find what no swap explains."""
    from truing.api import bisect
    from truing.doctor.bisect import first_differing
    from truing.doctor.bisect_report import code_location, unexplained_findings
    from truing.doctor.postmortem import suppressed_rules
    from truing.doctor.saved_updates import is_saved_audit

    seen, trials = bisect(run, stage=stage, step=step)
    found, open_ = first_differing(trials), unexplained_findings(seen, trials, suppressed_rules(run))
    place = code_location(found.part, seen.stage) if found and not is_saved_audit(run) else ""
    if as_json:
        told = {"run": str(run), "stage": seen.stage, "update": seen.step + 1}
        told |= {"guilty": found.part if found else None, "home": place or None}
        told |= {"unexplained": [each.code for each in open_], "parts": [asdict(each) for each in trials]}
        print(json.dumps(told, ensure_ascii=False))
    else:
        _print_parts(run, seen, trials, open_, place)
    return bool(found or open_)


def _print_parts(
    run: Path, seen: "Step", trials: Sequence["Trial"], found: Sequence["Finding"], place: str
) -> None:
    """Each part, then the verdict."""
    from truing.doctor.bisect import first_differing, lines

    console = Console(highlight=False)
    head = f"{run}: update {seen.step + 1} of {seen.stage}, {with_count(len(seen.rows), 'row')}"
    console.print(head, style="bold", markup=False, soft_wrap=True)
    for text, style in lines(trials):
        console.print(text, style=style, markup=False, soft_wrap=True)
    named, swapped = first_differing(trials), any(each.state == "same" for each in trials)
    if named:
        told = f"guilty: {named.part}" + (f", which is made in {place}" if place else "")
    elif found:
        codes = ", ".join(dict.fromkeys(f"{each.claim.verdict} {each.code}" for each in found))
        no_part = "no part that could be swapped differs" if swapped else "no part could be swapped"
        told = f"rules find something, and {no_part}: {codes} (truing check {run})"
    else:
        told = "no part differs from its second implementation" if swapped else "no part could be swapped"
    style = "bold red" if named else "bold yellow" if found or not swapped else "bold green"
    console.print(told, style=style, markup=False, soft_wrap=True)


def compare_runs(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    other: Annotated[Path, typer.Argument(help="Another.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Where two runs part: recipe, machine, and the first update, row and token: exit 1 if they do."""
    from truing.analysis.compare import compare, comparison_lines

    found = compare(run, other)
    if as_json:
        print(json.dumps(asdict(found), ensure_ascii=False))
    else:
        console = Console(highlight=False)
        for text, style in comparison_lines(found):
            console.print(text, style=style or None, markup=False, soft_wrap=True)
    if found.differs:
        raise typer.Exit(1)
