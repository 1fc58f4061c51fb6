"""The display takes the events of the runner, with the runner's names."""

import ast
import inspect

import pytest
from labs import lab_in

from truing.lab.report.progress import LabDisplay
from truing.lab.run import runner


def reported():
    """Return the events that the runner reports, with the names of their facts."""
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(runner))) if isinstance(node, ast.Call)]
    named = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "report"]
    return {call.args[0].value: [key.value for key in call.args[1].keys] for call in named}


@pytest.mark.parametrize(("kind", "names"), reported().items())
def test_every_event_of_the_runner_is_shown(kind, names):
    parameters = inspect.signature(getattr(LabDisplay, f"on_{kind}")).parameters
    assert list(parameters)[1:] == names


def test_a_line_says_how_many_runs_are_left(tmp_path, capsys):
    (hypothesis,) = lab_in(tmp_path).hypotheses.values()
    display = LabDisplay(hypothesis, slots=1)
    display("checking", {"seconds": 0.0})
    display("checking", {"seconds": 1.0})
    display.last_line_at = 0.0
    display("checking", {"seconds": 120.0})
    display.last_line_at = 0.0
    display("progress", {"running": [], "left": 3})
    shown = capsys.readouterr().err
    lines = [line for line in shown.splitlines() if "checking the baseline" in line]
    assert [line.partition("…")[2] for line in lines] == ["", " 2 min"]
    assert "remaining: at most 3 runs" in shown
