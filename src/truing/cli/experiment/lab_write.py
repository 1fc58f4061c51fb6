"""`truing lab init`, `new`: create a lab and its hypotheses."""

from pathlib import Path
from typing import Annotated

import typer

from truing.cli.experiment.lab_run import LabFolder
from truing.terminal.say import say


def init(
    folder: Annotated[Path, typer.Argument(help="A new or empty folder.")],
    template: Annotated[
        str, typer.Option(help="musique, dual, tools, tiny (to try a lab) or blank.")
    ] = "blank",
    recipe: Annotated[
        str | None, typer.Option(help="The baseline: a recipe's file or name; by default the template's.")
    ] = None,
) -> None:
    """Create a lab: a problem statement, a baseline, and hypotheses to fill in or to run."""
    from truing.errors import TruingError
    from truing.lab.run.cost import check_data
    from truing.lab.store.create import create_lab
    from truing.lab.store.lab import open_lab

    for path in create_lab(folder, template, recipe):
        print(path)
    try:
        check_data(open_lab(folder))
    except TruingError as error:
        where = f"changes in {folder / 'lab.toml'}, whose folder paths start at"
        text = f"no run of this lab can start yet; see {where}: {error}"
        say(text, "yellow", err=True)


def new(
    title: Annotated[str, typer.Argument(help="A few words, such as 'Prompts are too short'.")],
    lab: LabFolder = Path(),
) -> None:
    """Write a blank file for the next hypothesis."""
    from truing.errors import LabError
    from truing.lab.store.create import blank_hypothesis, next_hypothesis_path
    from truing.lab.store.lab import open_lab
    from truing.utils.atomic_files import write_atomically

    if not title.strip():
        raise LabError("a hypothesis needs a title", expected="a few words, such as 'Prompts are too short'")
    lab_state = open_lab(lab)
    path = next_hypothesis_path(lab_state, title)
    write_atomically(path, blank_hypothesis(title, int(path.name[1:].partition("-")[0])).encode())
    print(path)
