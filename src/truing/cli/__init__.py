"""The command line: one file per command.

A command imports the trainer when it runs: torch takes seconds, which neither ``--help`` nor a wrong
recipe should cost.
"""

import sys
import traceback

import typer
from rich.console import Console

from truing.cli.diagnose.bisect import bisect_run, compare_runs
from truing.cli.diagnose.check import check_target
from truing.cli.diagnose.rules import explain, rules
from truing.cli.diagnose.scorecard import show_scorecard
from truing.cli.diagnose.why import explain_run
from truing.cli.experiment.lab import app as lab
from truing.cli.experiment.verify import verify_recipe
from truing.cli.export.export import export
from truing.cli.export.models import app as models
from truing.cli.inspect.board import board
from truing.cli.inspect.profile import profile
from truing.cli.inspect.report import write_report
from truing.cli.inspect.tail import tail
from truing.cli.inspect.tokens import tokens
from truing.cli.measure.bench import app as bench
from truing.cli.measure.faults import faults
from truing.cli.measure.probes import probes
from truing.cli.train.eval import evaluate_target
from truing.cli.train.train import train
from truing.errors import RewardError, TruingError

app = typer.Typer(
    name="truing",
    help="Trains language-model agents with reinforcement learning, and proves that every number is right.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(train)
app.command("check")(check_target)
app.command("verify")(verify_recipe)
app.command("eval")(evaluate_target)
app.command()(tail)
app.command()(tokens)
app.command("scorecard")(show_scorecard)
app.command()(profile)
app.command()(probes)
app.command()(rules)
app.command()(explain)
app.command()(faults)
app.command("why")(explain_run)
app.command("bisect")(bisect_run)
app.command("compare")(compare_runs)
app.command()(export)
app.command()(board)
app.command("report")(write_report)
app.add_typer(models, name="models")
app.add_typer(bench, name="bench")
app.add_typer(lab, name="lab")


def main() -> None:
    """Run a command; an error that Truing raises on purpose is shown without a traceback, exit code 2."""
    try:
        app()
    except TruingError as error:
        console = Console(stderr=True, highlight=False)
        if isinstance(error, RewardError) and error.__cause__ is not None:
            console.print("".join(traceback.format_exception(error.__cause__)), markup=False, soft_wrap=True)
        told = "\n".join([f"error: {error}", *getattr(error, "__notes__", [])])
        console.print(told, style="red", markup=False, soft_wrap=True)
        sys.exit(2)
