"""The command line as a user meets it, without the cost of a new process."""

import contextlib
import io
import sys
from dataclasses import dataclass
from unittest import mock

from truing.cli import main


@dataclass(frozen=True)
class Outcome:
    """What a command left on the terminal, and its exit code."""

    code: int
    out: str
    err: str


def truing(*words: object) -> Outcome:
    """Run ``truing`` with these words."""
    out, err = io.StringIO(), io.StringIO()
    argv = mock.patch.object(sys, "argv", ["truing", *map(str, words)])
    with argv, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code
    return Outcome(code, out.getvalue(), err.getvalue())
