"""`truing scorecard`: the success criteria of field reports, as they stand in a run."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from truing.errors import RecordError

if TYPE_CHECKING:
    from truing.analysis.scorecard import SuccessCriterion

COLOURS = {"pass": "green", "fail": "red", "fact": "cyan", "not checked": "dim"}

REFRESH_SECONDS = 2.0
"""Seconds between two looks at a run that goes on."""


def show_scorecard(
    run: Annotated[Path, typer.Argument(help="A run directory; the run may go on.")],
    watch: Annotated[bool, typer.Option("--watch", help="Show it again as the run goes on.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the criteria for RUN as they should read: exit 0 where none fails, 1 where one does."""
    card, ended = _read_scorecard(run)
    if as_json:
        print(json.dumps([asdict(criterion) for criterion in card], ensure_ascii=False))
    elif watch:
        with Live(
            scorecard_table(card, with_readings=True), console=Console(highlight=False), refresh_per_second=1
        ) as live:
            while not ended:
                time.sleep(REFRESH_SECONDS)
                card, ended = _read_scorecard(run)
                live.update(scorecard_table(card, with_readings=True))
    else:
        Console(highlight=False).print(scorecard_table(card, with_readings=True))
    if any(criterion.verdict == "fail" for criterion in card):
        raise typer.Exit(1)


def scorecard_table(criteria: Sequence["SuccessCriterion"], *, with_readings: bool) -> Table:
    """A line per criterion; with its readings, two more: as a report has it, and as it should read."""
    shown = Table.grid(padding=(0, 2))
    for each in criteria:
        shown.add_row(Text(each.verdict, COLOURS[each.verdict]), Text(each.name, "bold"), Text(each.measured))
        if with_readings:
            shown.add_row("", Text("as reports have it", "dim"), Text(each.report, "dim"))
            shown.add_row("", Text("as it should read", "dim"), Text(each.reading, "dim"))
    return shown


def _read_scorecard(run: Path) -> tuple[list["SuccessCriterion"], bool]:
    """The scorecard of what is on record, and whether the run has ended."""
    from truing.analysis.incremental_reader import IncrementalReader
    from truing.analysis.scorecard import scorecard
    from truing.config import resolve

    followed = IncrementalReader(run)
    followed.refresh()
    facts = followed.run_json
    if "device" not in facts["machine"]:
        raise RecordError(
            f"run.json of {run} does not say on which device it ran", remedy="it is of an older version"
        )
    kinds, device = [event.kind for event in followed.events], facts["machine"]["device"]
    ended = "finished" in kinds or "gave_up" in kinds
    return scorecard(followed.columns, resolve(facts["recipe"]), device, kinds), ended
