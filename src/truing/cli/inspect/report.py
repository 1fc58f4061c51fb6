"""`truing report`: write a run, or a trace, as one HTML file."""

from pathlib import Path
from typing import Annotated

import typer

from truing.terminal.say import say


def write_report(
    run: Annotated[Path, typer.Argument(help="A run, or another trainer's trace; it may go on.")],
    out: Annotated[Path | None, typer.Option(help="The file; by default RUN.html, next to the run.")] = None,
) -> None:
    """Write the board's pages of RUN as one self-contained HTML file, to send."""
    from truing.board.html_report import html_report
    from truing.cli.inspect.lost_steps import warn_of_lost_steps
    from truing.doctor.traces.head import has_trace
    from truing.record import RunReader
    from truing.utils.atomic_files import write_atomically

    if not has_trace(run):
        RunReader(run).run_json()
        warn_of_lost_steps(run)
    path = out or run.resolve().with_suffix(".html")
    write_atomically(path, html_report(run).encode())
    say(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
