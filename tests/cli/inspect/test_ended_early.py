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
from truing.envs.program import Program
from truing.errors import RecordError, RolloutError


def without_config(task, base_url, key):
    raise KeyError("CONFIG")


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A run whose programs all crash."""
    folder = tmp_path_factory.mktemp("runs")
    rows = folder / "rows.jsonl"
    rows.write_text("".join(f'{{"prompt": "{i}?", "answer": "{i}"}}\n' for i in range(8)))
    program = Program(without_config, tasks=str(rows), rewards=[lambda rollout, task: 1.0])
    recipe = load_recipe("tiny", ['stages=["grpo"]', "eval.base=false", "eval.tasks=2"])
    recipe = recipe.model_copy(update={"env": {}})
    with pytest.raises(RolloutError):
        train(recipe, env=program, out=folder / "run", on_event=lambda kind, facts: None)
    return folder / "run"


@pytest.mark.parametrize("command", [profile, tokens, explain_run])
def test_a_command_says_what_ended_it(ended, command):
    app = typer.Typer()
    app.command()(command)
    error = CliRunner().invoke(app, [str(ended)]).exception
    assert isinstance(error, RecordError)
    assert "KeyError: 'CONFIG'" in str(error)


def test_what_was_given_in_python_is_given_again(ended):
    with pytest.raises(RecordError) as error:
        diagnose_run(ended)
    expected = f'mend that, and begin again: truing.train("{ended / "recipe.toml"}", env=…)'
    assert error.value.remedy == expected
    assert "ToolError" not in str(error.value)


def test_a_run_that_has_not_ended_has_no_step_yet(ended, tmp_path):
    run = shutil.copytree(ended, tmp_path / "run")
    lines = (run / "events.jsonl").read_text().splitlines(keepends=True)
    (run / "events.jsonl").write_text("".join(line for line in lines if '"stopped"' not in line))
    with pytest.raises(RecordError, match="has no step yet"):
        diagnose_run(run)
