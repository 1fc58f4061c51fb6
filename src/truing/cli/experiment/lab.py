"""`truing lab`: hypotheses, experiments and verdicts."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from truing.cli.experiment.lab_run import AsJson, LabFolder, run, verdict, work
from truing.cli.experiment.lab_write import init, new, suggest
from truing.utils.format import escape_lines

if TYPE_CHECKING:
    from truing.lab.store.lab import Lab

app = typer.Typer(
    help="Test hypotheses on why the reward does not go up: experiments, verdicts, a record of the evidence.",
    no_args_is_help=True,
)


@app.command()
def plan(
    lab: LabFolder = Path(),
    jobs: Annotated[int, typer.Option(min=1, help="Parallel runs, for the estimate of minutes.")] = 1,
    as_json: AsJson = False,
) -> None:
    """List open steps by number, prerequisites first, with the effect that each can detect."""
    from truing.lab.report.numbers import number_text
    from truing.lab.report.text import step_lines
    from truing.lab.run.plan import detectable_effects
    from truing.lab.run.plan import plan as plan_steps
    from truing.lab.store.lab import open_lab

    lab_state = open_lab(lab)
    steps = plan_steps(lab_state, jobs)
    if as_json:
        print(json.dumps({"steps": [step.facts() for step in steps]}, ensure_ascii=False))
        return
    console = Console(highlight=False)
    for metric, effect, noise in detectable_effects(lab_state):
        text = f"{metric} can detect {number_text(effect)} or more, {noise.source}"
        console.print(escape_lines(text), style="dim", markup=False, soft_wrap=True)
    for text, style in step_lines(steps):
        console.print(escape_lines(text), style=style or None, markup=False, soft_wrap=True)
    if any(step.kind == "experiment" for step in steps) and (problem := _why_no_run(lab_state)):
        console.print(escape_lines(problem), style="red", markup=False, soft_wrap=True)
    if not steps:
        console.print("no open step: truing lab suggest RUN, or truing lab new TITLE")


def _why_no_run(lab_state: "Lab") -> str:
    """Return why no run of the lab could start or be evaluated: its data; "" if they are there."""
    from truing.api import check_evaluation
    from truing.errors import TruingError
    from truing.lab.run.design import baseline_of

    try:
        check_evaluation(baseline_of(lab_state).recipe)
    except TruingError as error:
        return f"no run of this lab can start: {error}"
    return ""


@app.command()
def status(lab: LabFolder = Path(), as_json: AsJson = False) -> None:
    """Print the verdict on every hypothesis, and update the README's table."""
    from truing.lab.report.text import verdict_lines
    from truing.lab.report.write import write_report
    from truing.lab.store.lab import open_lab
    from truing.lab.verdicts.verdict import judge

    lab_state = open_lab(lab)
    verdicts = [judge(lab_state, each) for each in lab_state.hypotheses.values()]
    write_report(lab_state)
    if as_json:
        print(json.dumps({"hypotheses": [each.facts() for each in verdicts]}, ensure_ascii=False))
        return
    console = Console(highlight=False)
    for each in verdicts:
        for text, style in [
            *list(verdict_lines(each))[:2],
            *((f"  note: {note}", "dim") for note in each.notes),
        ]:
            console.print(escape_lines(text), style=style or None, markup=False, soft_wrap=True)


@app.command()
def report(lab: LabFolder = Path()) -> None:
    """Rewrite all derived files: README, log, results and report.md."""
    from truing.lab.report.write import write_report
    from truing.lab.store.lab import open_lab

    for path in write_report(open_lab(lab)):
        print(path)


app.command()(init)
app.command()(new)
app.command()(run)
app.command()(verdict)
app.command()(suggest)
app.command(hidden=True)(work)
