"""`truing lab`: hypotheses, experiments and verdicts."""

import json
from pathlib import Path
from typing import Annotated

import typer

from truing.cli.experiment.lab_run import AsJson, LabFolder, run, verdict, work
from truing.cli.experiment.lab_write import init, new
from truing.terminal.say import say, say_all

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
    """List open steps by number, prerequisites first: what each can detect, and what its runs cost."""
    from truing.errors import TruingError
    from truing.lab.report.text import step_lines
    from truing.lab.run.cost import check_data, cost_text
    from truing.lab.run.plan import plan as plan_steps
    from truing.lab.store.lab import open_lab

    lab_state = open_lab(lab)
    steps = plan_steps(lab_state, jobs)
    keys = {key for step in steps for key in step.keys}
    cost = problem = ""
    try:
        check_data(lab_state)
        cost = cost_text(lab_state, len(keys), jobs) if keys else ""
    except TruingError as error:
        problem = f"no run of this lab can start: {error}"
    if as_json:
        facts = {"steps": [step.facts() for step in steps], "cost": cost, "problem": problem}
        print(json.dumps(facts, ensure_ascii=False))
        return
    say_all(step_lines(steps))
    if cost:
        say(f"cost of these experiments: {cost}")
    if problem:
        say(problem, "red")
    if not steps:
        say("no open step: truing lab new TITLE writes a hypothesis, truing why RUN finds them")


@app.command()
def status(lab: LabFolder = Path(), as_json: AsJson = False) -> None:
    """Print the verdict on every hypothesis, and update the README's table."""
    from truing.lab.report.text import gain_lines, verdict_lines
    from truing.lab.report.write import write_report
    from truing.lab.store.lab import open_lab
    from truing.lab.verdicts.verdict import judge

    lab_state = open_lab(lab)
    verdicts = [judge(lab_state, each) for each in lab_state.hypotheses.values()]
    write_report(lab_state)
    if as_json:
        print(json.dumps({"hypotheses": [each.facts() for each in verdicts]}, ensure_ascii=False))
        return
    for each in verdicts:
        say_all(list(verdict_lines(each))[:2])
        say_all(gain_lines(each))
        say_all((f"  note: {note}", "dim") for note in each.notes)


@app.command()
def report(lab: LabFolder = Path()) -> None:
    """Rewrite all derived files: README, log, and the results of hypotheses."""
    from truing.lab.report.write import write_report
    from truing.lab.store.lab import open_lab

    for path in write_report(open_lab(lab)):
        print(path)


app.command()(init)
app.command()(new)
app.command()(run)
app.command()(verdict)
app.command(hidden=True)(work)
