"""`truing tail`: follow a run from its record, beside the process that trains or long after."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def tail(
    run: Annotated[Path, typer.Argument(help="A run directory; the run may go on.")],
    once: Annotated[bool, typer.Option("--once", help="Show how it stands, and end.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the facts as a line of JSON, and end.")
    ] = False,
) -> None:
    """Follow RUN, finished or made by another process: what happens in lines, and where it stands."""
    with suppress(KeyboardInterrupt):  # nothing is lost by it: who trains is not asked
        from truing.cli.inspect.follow import follow, summary_json
        from truing.terminal.reader import RunWatcher

        watched = RunWatcher(run)
        if as_json:
            print(summary_json(watched))
        else:
            follow(watched, Console(highlight=False), once=once)
