"""`truing scorecard`: the success criteria of a run."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from truing.analysis.scorecard import SuccessCriterion

COLOURS = {"pass": "green", "fail": "red", "fact": "cyan", "not checked": "dim"}


def show_scorecard(
    run: Annotated[Path, typer.Argument(help="A run directory; the run may still be running.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge RUN by success criteria (ratio, KL, tool calls …), during training or after.

    Exit code 0: no criterion fails. 1: one does.
    """
    criteria = _read_scorecard(run)
    if as_json:
        print(json.dumps([asdict(criterion) for criterion in criteria], ensure_ascii=False))
    else:
        Console(highlight=False).print(scorecard_table(criteria, with_readings=True))
    if any(criterion.verdict == "fail" for criterion in criteria):
        raise typer.Exit(1)


def scorecard_table(criteria: Sequence["SuccessCriterion"], *, with_readings: bool) -> Table:
    """Return a table with a line per criterion; with readings, two more: reports, and what is expected."""
    table = Table.grid(padding=(0, 2))
    for criterion in criteria:
        table.add_row(
            Text(criterion.verdict, COLOURS[criterion.verdict]),
            Text(criterion.name, "bold"),
            Text(criterion.measured),
        )
        if with_readings:
            table.add_row("", Text("in published reports", "dim"), Text(criterion.report, "dim"))
            table.add_row("", Text("expected", "dim"), Text(criterion.reading, "dim"))
    return table


def _read_scorecard(run: Path) -> list["SuccessCriterion"]:
    """Return the scorecard of the recorded steps."""
    from truing.analysis.incremental_reader import IncrementalReader
    from truing.analysis.scorecard import scorecard
    from truing.cli.inspect.lost_steps import warn_of_lost_steps
    from truing.config import resolve

    warn_of_lost_steps(run)
    reader = IncrementalReader(run)
    reader.refresh()
    recipe, device = reader.reader.run_fact("recipe"), reader.reader.run_fact("machine", "device")
    return scorecard(reader.columns, resolve(recipe), device, reader.events)
