"""`truing trace`: traces of other trainers."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from truing.terminal.say import say

app = typer.Typer(no_args_is_help=True, help="Traces: what another trainer's steps computed.")


@app.command()
def demo(folder: Annotated[Path, typer.Argument(help="A new folder.")]) -> None:
    """Write a healthy trace and eleven faulty ones of a small trainer, and the file that writes traces."""
    from truing.doctor.traces.demo import BUGS, WRITER, write_demo

    write_demo(folder)
    for name, what in {"healthy": "no bug", **BUGS}.items():
        say(f"{name:<20} {what}")
    say(f"check one: truing check {quote(str(folder / next(iter(BUGS))))}")
    say(f"write your own with {folder / WRITER}: truing explain trace")
