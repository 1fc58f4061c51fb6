"""`truing lab init`, `new`, `suggest`: create a lab and its hypotheses."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from truing.cli.experiment.lab_run import AsJson, LabFolder
from truing.utils.format import escape_lines


def init(
    folder: Annotated[Path, typer.Argument(help="A new or empty folder.")],
    changes: Annotated[
        list[str] | None, typer.Argument(help="key=value of the baseline, as in env.data=FILE")
    ] = None,
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

    for path in create_lab(folder, template, recipe, changes or ()):
        print(path)
    try:
        check_data(open_lab(folder))
    except TruingError as error:
        where = f"changes in {folder / 'lab.toml'}, whose folder paths start at"
        text = f"no run of this lab can start yet; see {where}: {error}"
        Console(stderr=True, highlight=False).print(
            escape_lines(text), style="yellow", markup=False, soft_wrap=True
        )


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


def suggest(
    run: Annotated[Path, typer.Argument(help="A run directory; the run may go on.")],
    write: Annotated[
        bool, typer.Option("--write", help="Write the suggestions as hypotheses of the lab.")
    ] = False,
    lab: LabFolder = Path(),
    as_json: AsJson = False,
) -> None:
    """Suggest hypotheses from RUN's findings and curves: found ones first, cheap tests before long ones."""
    from truing.doctor.causes.history import History
    from truing.doctor.postmortem import diagnose_run
    from truing.lab.report.suggest import suggest as suggest_from
    from truing.lab.report.text import suggestion_lines
    from truing.lab.store.create import why_unwanted, write_suggestion
    from truing.lab.store.lab import open_lab

    run = (
        run / "run" if (run / "run" / "run.json").exists() else run
    )  # a lab keeps more than the run directory in the folder of a run
    history = History.from_run(run, diagnose_run(run))
    suggestions = suggest_from(history)
    paths, skipped = [], []
    for suggestion in suggestions if write else ():
        reason = why_unwanted(open_lab(lab), suggestion, history.facts.recipe)
        skipped += [f"{suggestion.title}: {reason}"] if reason else []
        paths += [] if reason else [str(write_suggestion(open_lab(lab), suggestion))]
    if as_json:
        payload = {
            "suggestions": [suggestion.facts() for suggestion in suggestions],
            "written": paths,
            "left_out": skipped,
        }
        print(json.dumps(payload, ensure_ascii=False))
    else:
        console = Console(highlight=False)
        for text, style in suggestion_lines(suggestions):
            console.print(escape_lines(text), style=style or None, markup=False, soft_wrap=True)
        for text in skipped:
            console.print(f"not written: {text}", style="yellow", markup=False, soft_wrap=True)
        for path in paths:
            print(path)
