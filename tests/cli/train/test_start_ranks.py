"""The command of a rank: the one that was typed, with its run directory, and resumed or not."""

import sys
from pathlib import Path

import pytest

from truing.cli.train.start_ranks import folder_of_ranks, rank_arguments

RUN = Path("runs/digits")


@pytest.mark.parametrize(
    ("typed", "out", "resume", "expected"),
    [
        ("train r.toml --ranks 2", None, False, "train r.toml --ranks 2 --out runs/digits"),
        ("train r.toml --out runs/digits", RUN, True, "train r.toml --out runs/digits --resume"),
        ("train r.toml --out runs/digits --resume", RUN, True, "train r.toml --out runs/digits --resume"),
        # a run that is started over, since nothing of it was on record
        ("train r.toml --out runs/digits --resume", RUN, False, "train r.toml --out runs/digits"),
        ("train r.toml --ray local", None, True, "train r.toml --ray local --out runs/digits --resume"),
    ],
)
@pytest.mark.parametrize(
    ("program", "started"), [("/bin/truing", ["/bin/truing"]), ("x.py", ["-m", "truing"])]
)
def test_the_command_of_a_rank(typed, out, resume, expected, program, started, monkeypatch):
    monkeypatch.setattr(sys, "argv", [program, *typed.split()])
    assert rank_arguments(RUN, out, resume) == [*started, *expected.split()]


def test_what_ranks_print_is_beside_the_run():
    assert folder_of_ranks(RUN) == Path("runs/digits.ranks")
