"""`truing lab init`, `new`, `suggest`: what is to be found out."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from truing.cli.experiment.lab_run import AsJson, LabFolder


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
    from truing.lab.store.create import create_lab as make

    for path in make(folder, template, recipe):
        print(path)


def new(
    title: Annotated[str, typer.Argument(help="A few words, such as 'Prompts are too short'.")],
    lab: LabFolder = Path(),
) -> None:
    """Write the next hypothesis, to be filled in."""
    from truing.errors import LabError
    from truing.lab.store.create import blank_hypothesis, next_hypothesis_path
    from truing.lab.store.lab import open_lab
    from truing.utils.atomic_files import write_atomically

    if not title.strip():
        raise LabError("a hypothesis needs a title", expected="a few words, such as 'Prompts are too short'")
    opened = open_lab(lab)
    path = next_hypothesis_path(opened, title)
    write_atomically(path, blank_hypothesis(title, int(path.name[1:].partition("-")[0])).encode())
    print(path)


def suggest(
    run: Annotated[Path, typer.Argument(help="A run directory; the run may go on.")],
    write: Annotated[bool, typer.Option("--write", help="Write them as hypotheses of the lab.")] = False,
    lab: LabFolder = Path(),
    as_json: AsJson = False,
) -> None:
    """What RUN's findings and curves leave open, as hypotheses: most information per minute first."""
    from truing.doctor.hypotheses.run_history import RunHistory
    from truing.doctor.postmortem import diagnose_run
    from truing.lab.report.suggest import suggest as make
    from truing.lab.report.text import suggestion_lines
    from truing.lab.store.create import why_unwanted, write_suggestion
    from truing.lab.store.lab import open_lab

    run = (
        run / "run" if (run / "run" / "run.json").exists() else run
    )  # a lab's folder of a run has more in it
    story = RunHistory.from_run(run, diagnose_run(run))
    found = make(story)
    paths, left_out = [], []
    for each in found if write else ():
        why_not = why_unwanted(open_lab(lab), each, story.recipe)
        left_out += [f"{each.title}: {why_not}"] if why_not else []
        paths += [] if why_not else [str(write_suggestion(open_lab(lab), each))]
    if as_json:
        told = {"suggestions": [each.facts() for each in found], "written": paths, "left_out": left_out}
        print(json.dumps(told, ensure_ascii=False))
    else:
        console = Console(highlight=False)
        for text, style in suggestion_lines(found):
            console.print(text, style=style or None, markup=False, soft_wrap=True)
        for text in left_out:
            console.print(f"not written: {text}", style="yellow", markup=False, soft_wrap=True)
        for path in paths:
            print(path)
