"""The command line: one file per command.

A command imports the trainer when it runs: torch takes seconds, which neither ``--help`` nor a wrong
recipe should cost.
"""

import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import truing
from truing.cli.diagnose.bisect import bisect_run, compare_runs
from truing.cli.diagnose.check import check_target
from truing.cli.diagnose.env import show_env
from truing.cli.diagnose.prove import prove_server
from truing.cli.diagnose.rules import explain, rules
from truing.cli.diagnose.scorecard import show_scorecard
from truing.cli.diagnose.trace import app as trace
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
from truing.cli.of_clone import command_of_clone
from truing.cli.output import guarded_output
from truing.cli.train.engine import app as engine
from truing.cli.train.eval import evaluate_target
from truing.cli.train.fork import fork_run
from truing.cli.train.train import train
from truing.errors import RewardError, TruingError, redact
from truing.terminal.say import say

PANELS: Mapping[str, Mapping[str, Callable[..., None] | typer.Typer]] = {
    "Train": {"train": train, "fork": fork_run, "eval": evaluate_target, "engine": engine},
    "Inspect": {"board": board, "tail": tail, "tokens": tokens, "profile": profile, "report": write_report},
    "Diagnose": {
        "check": check_target,
        "why": explain_run,
        "bisect": bisect_run,
        "compare": compare_runs,
        "scorecard": show_scorecard,
        "rules": rules,
        "explain": explain,
        "trace": trace,
        "prove": prove_server,
        "env": show_env,
    },
    "Experiment": {"lab": lab, "verify": verify_recipe},
    "Measure": {
        "bench": command_of_clone("measure.command", "bench"),
        "faults": command_of_clone("faults.command", "faults"),
        "probes": command_of_clone("probes.command", "probes"),
    },
    "Export": {"export": export, "models": models},
}
"""Every command, by the panel of ``truing --help`` that lists it, in the order of the help."""

HELP = """Train language-model agents with reinforcement learning, and check every step.

Start with `truing check RECIPE`, then `truing train RECIPE`, then `truing check RUN`.

If the reward does not go up: `truing why RUN`."""


class _PanelOrder(TyperGroup):
    """Lists commands in the order of ``PANELS``; Typer alone lists groups of commands last."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return [name for commands in PANELS.values() for name in commands]


def _print_version(wanted: bool) -> None:
    """Print the version and exit, if ``--version`` is given."""
    if wanted:
        print(f"truing {truing.__version__}")
        raise typer.Exit


app = typer.Typer(
    name="truing",
    cls=_PanelOrder,
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Declare the options of `truing` itself."""


for _panel, _commands in PANELS.items():
    for _name, _command in _commands.items():
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, name=_name, rich_help_panel=_panel)
        else:
            app.command(_name, rich_help_panel=_panel)(_command)


def main() -> None:
    """Run a command; an error that Truing raises on purpose is printed without a traceback."""
    with guarded_output():
        _run()


def _run() -> None:
    try:
        app()
    except TruingError as error:
        if isinstance(error, RewardError) and error.__cause__ is not None:
            cause = "".join(traceback.format_exception(error.__cause__))
            say(redact(cause), err=True)
        text = "\n".join([f"error: {error}", *getattr(error, "__notes__", [])])
        say(redact(text), "red", err=True)
        sys.exit(error.exit_code)
