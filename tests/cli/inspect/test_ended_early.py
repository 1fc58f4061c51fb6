"""A run that ended before its first step: the commands that read it say what ended it."""

import pytest
import typer
from typer.testing import CliRunner

from truing.cli.diagnose.why import explain_run
from truing.cli.inspect.profile import profile
from truing.cli.inspect.tokens import tokens
from truing.config import load_recipe
from truing.doctor.postmortem import diagnose_run
from truing.errors import RecordError
from truing.record import RunWriter

RECIPE = load_recipe("tiny").model_dump(mode="json")
MESSAGE = "no rollout has a reward\n  got: KeyError: 'CONFIG'"


@pytest.fixture
def ended(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        writer.write_run({"run_id": "r", "recipe": RECIPE})
        writer.write_recipe("")
        writer.write_event("stopped", reason="no rollout has a reward", error="RolloutError", message=MESSAGE)
    return tmp_path / "run"


@pytest.mark.parametrize("command", [profile, tokens, explain_run])
def test_a_command_says_what_ended_it(ended, command):
    app = typer.Typer()
    app.command()(command)
    error = CliRunner().invoke(app, [str(ended)]).exception
    assert isinstance(error, RecordError)
    assert "KeyError: 'CONFIG'" in str(error)


def test_a_run_that_has_not_begun_has_no_step_yet(tmp_path):
    with RunWriter(tmp_path / "run") as writer:
        writer.write_run({"run_id": "r", "recipe": RECIPE})
        writer.write_event("note", text="begins")
    with pytest.raises(RecordError, match="has no step yet"):
        diagnose_run(tmp_path / "run")
