"""`truing tail`: follow a run from its run directory, during training or later."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def tail(
    run: Annotated[Path, typer.Argument(help="A run directory; the run may still be running.")],
    once: Annotated[bool, typer.Option("--once", help="Print the status, and exit.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the status as a line of JSON, and exit.")
    ] = False,
) -> None:
    """Print RUN's events and status in the terminal, live until the run ends."""
    with suppress(KeyboardInterrupt):  # the training process is not affected
        from truing.cli.inspect.follow import follow, summary_json
        from truing.terminal.reader import RunWatcher

        watcher = RunWatcher(run)
        if as_json:
            print(summary_json(watcher))
        else:
            follow(watcher, Console(highlight=False), once=once)
