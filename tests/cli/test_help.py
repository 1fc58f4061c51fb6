"""`truing --help` and `truing --version`: the panels, the commands, and what to type first."""

import re

import pytest
from command import truing

import truing as package
from truing.cli import PANELS
from truing.cli.of_clone import command_of_clone
from truing.errors import TruingError

COMMANDS = {
    "Train": ["train", "fork", "eval", "engine"],
    "Inspect": ["board", "tail", "tokens", "profile", "report"],
    "Diagnose": [
        *("check", "why", "bisect", "compare", "scorecard", "rules", "explain", "trace", "prove", "env"),
    ],
    "Experiment": ["lab", "verify"],
    "Measure": ["bench", "faults", "probes"],
    "Export": ["export", "models"],
}


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """A terminal on which no line of the help wraps."""
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 200)


def test_version_is_that_of_the_package():
    result = truing("--version")
    assert (result.code, result.out, result.err) == (0, "truing 0.1.0\n", "")
    assert package.__version__ == "0.1.0"


def test_help_lists_every_command_in_its_panel_in_order():
    assert {panel: list(commands) for panel, commands in PANELS.items()} == COMMANDS
    shown: dict[str, list[str]] = {}
    for line in truing("--help").out.splitlines():
        if panel := re.match(r"╭─ (\w+) ─", line):
            names = shown.setdefault(panel[1], [])
        elif command := re.match(r"│ (\w+) ", line):
            names.append(command[1])
    assert list(shown) == ["Options", *COMMANDS]
    assert shown | {"Options": []} == {"Options": []} | COMMANDS


def test_help_says_what_to_type_first():
    first = truing("--help").out.partition("╭─")[0]
    for command in ("truing check RECIPE", "truing train RECIPE", "truing check RUN", "truing why RUN"):
        assert command in first


@pytest.mark.parametrize(
    ("command", "when"),
    [
        ("check", "Check a recipe before training, or a run or another trainer's log after it, for faults."),
        ("why", "why RUN's reward does not go up"),
        ("scorecard", "Judge RUN by success criteria"),
        ("bisect", "the part of the trainer that computes a wrong value"),
        ("compare", "where two runs first differ"),
        ("verify", "Accept or reject RECIPE before a long run"),
        ("tail", "in the terminal, live"),
        ("board", "in the browser"),
        ("report", "one self-contained HTML file, to send"),
        ("probes", "the trainer's own code on small problems with known answers"),
    ],
)
def test_the_first_line_of_a_command_says_when_to_take_it(command, when):
    (line,) = (line for line in truing("--help").out.splitlines() if line.startswith(f"│ {command} "))
    assert when in line
    assert when in truing(command, "--help").out.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "nearest"),
    [(["chekc"], "check"), (["--verison"], "--version"), (["check", "x", "--stirct"], "--strict")],
)
def test_a_wrong_command_or_option_is_an_error_with_the_nearest_name(words, nearest):
    result = truing(*words)
    assert (result.code, result.out) == (2, "")
    assert nearest in result.err


def test_a_command_of_dev_says_where_it_is_without_a_clone(tmp_path, monkeypatch):
    monkeypatch.setattr("truing.utils.repository.REPOSITORY", tmp_path)
    with pytest.raises(TruingError, match=r"`truing faults` needs a clone(?s:.*)make install"):
        command_of_clone("faults.command", "faults")(["on-policy-0"])
