"""`truing lab init`, `new`, `suggest`: what is to be found out."""

from pathlib import Path
from typing import Annotated

import typer

Where = Annotated[Path, typer.Option("--lab", help="The lab's folder, or one inside it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]


def init(
    folder: Annotated[Path, typer.Argument(help="A folder that is new or empty.")],
    template: Annotated[
        str, typer.Option(help="musique, dual, tools, tiny (to try a lab) or blank.")
    ] = "blank",
    recipe: Annotated[
        str | None, typer.Option(help="The baseline: a recipe's file or name; the template's own by default.")
    ] = None,
) -> None:
    """Make a lab: a problem statement, hypotheses to fill in or to run, a baseline."""
    from truing.lab.init import init as make

    for path in make(folder, template, recipe):
        print(path)


def new(
    title: Annotated[str, typer.Argument(help="A few words, such as 'Prompts are too short'.")],
    lab: Where = Path(),
) -> None:
    """Write the next hypothesis, to be filled in."""
    from truing.lab.folder import open_lab
    from truing.lab.init import blank, next_path
    from truing.record.files import write_atomically

    opened = open_lab(lab)
    path = next_path(opened, title)
    write_atomically(path, blank(title, int(path.name[1:3])).encode())
    print(path)
