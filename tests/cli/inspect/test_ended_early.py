"""A run that ended before its first step: the commands that read it say what ended it."""

import shutil

import pytest
import typer
from typer.testing import CliRunner

from truing.api import train
from truing.cli.diagnose.why import explain_run
from truing.cli.inspect.profile import profile
from truing.cli.inspect.tokens import tokens
from truing.config import load_recipe
from truing.doctor.postmortem import diagnose_run
from truing.errors import RecordError, RewardError


def without_config(rollout, task):
    raise KeyError("CONFIG")


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    recipe = load_recipe("tiny", ['stages=["grpo"]', "eval.base=false"])
    with pytest.raises(RewardError):
        train(recipe, rewards=[without_config], out=out, on_event=lambda kind, facts: None)
    return out


@pytest.mark.parametrize("command", [profile, tokens, explain_run])
def test_a_command_says_what_ended_it(ended, command):
    app = typer.Typer()
    app.command()(command)
    error = CliRunner().invoke(app, [str(ended)]).exception
    assert isinstance(error, RecordError)
    assert "KeyError: 'CONFIG'" in str(error)


def test_a_run_that_has_not_ended_has_no_step_yet(ended, tmp_path):
    run = shutil.copytree(ended, tmp_path / "run")
    lines = (run / "events.jsonl").read_text().splitlines(keepends=True)
    (run / "events.jsonl").write_text("".join(line for line in lines if '"stopped"' not in line))
    with pytest.raises(RecordError, match="has no step yet"):
        diagnose_run(run)
