"""The command line: one file per command.

A command imports the trainer when it runs: torch takes seconds, which neither ``--help`` nor a wrong
recipe should cost.
"""

import sys
import traceback

import typer
from rich.console import Console

from truing.cli.bench import app as bench
from truing.cli.bisect import bisect_run, compare_runs
from truing.cli.board import board
from truing.cli.check import check_target
from truing.cli.eval import evaluate_target
from truing.cli.export import export
from truing.cli.faults import faults
from truing.cli.lab import app as lab
from truing.cli.models import app as models
from truing.cli.probes import probes
from truing.cli.profile import profile
from truing.cli.report import write_report
from truing.cli.rules import explain, rules
from truing.cli.scorecard import show_scorecard
from truing.cli.tail import tail
from truing.cli.tokens import tokens
from truing.cli.train import train
from truing.cli.verify import verify_recipe
from truing.cli.why import explain_run
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
