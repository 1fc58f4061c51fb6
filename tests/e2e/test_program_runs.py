"""A program from its first rollouts to demonstrations of its own, to SFT on them, to GRPO."""

import json

import pytest
import typer
from typer.testing import CliRunner

from dev.faults.healthy_runs import PROGRAM
from dev.faults.run_fault import BASE_RECIPE
from truing.api import train
from truing.cli.export.export import export
from truing.cli.inspect.tokens import tokens
from truing.config import load_recipe
from truing.errors import RecordError
from truing.record import RunReader

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def first_run(tmp_path_factory):
    """A run of GRPO whose program nobody has demonstrated; every rollout is paid 1."""
    out = tmp_path_factory.mktemp("programs") / "first"
    train(recipe(), rewards=[one], out=out, on_event=lambda kind, facts: None)
    return out


def one(rollout, task):
    return 1.0


def recipe(**env):
    program = {**PROGRAM["env"], "function": "dev/faults/agent_program.py:ask_thrice", **env}
    table = {**BASE_RECIPE, "stages": ["grpo"], "env": program, "chat": {"tool_prompt": "brief"}}
    table["grpo"] = {"steps": 1, "prompts_per_step": 3, "group_size": 16, "learning_rate": 1e-3}
    table["sampling"] = {"max_new_tokens": 1}
    return table


def run_command(command, *words):
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def test_the_calls_of_a_rollout_are_told(first_run):
    told = json.loads(run_command(tokens, first_run, "--json").stdout)
    assert sorted(call["call"] for call in told["calls"]) == [1, 2, 3, 4, 5]
    assert {token["call"] for token in told["tokens"]} > {None}


def test_a_program_is_trained_on_its_own_paid_conversations(first_run, tmp_path):
    rows = tmp_path / "paid.jsonl"
    result = run_command(export, first_run, "--conversations", rows, "--min-reward", 1)
    count = len(rows.read_text().splitlines())
    assert result.stdout == f"{rows}: {count} rows\n"
    assert count >= 2  # of three tasks; one whose answers have a special token demonstrates nothing
    table = recipe(data=str(rows)) | {"stages": ["sft", "grpo"], "eval": {"tasks": 0, "base": False}}
    table["sft"] = {"steps": 1, "batch_size": 2, "learning_rate": 1e-3}
    out = tmp_path / "second"
    train(table, rewards=[one], out=out, on_event=lambda kind, facts: None)
    demonstrations = {row["id"]: row["completion"] for row in map(json.loads, rows.read_text().splitlines())}
    reader = RunReader(out)
    sft = reader.table(next(iter(reader.steps())))
    learned: dict[str, dict[int, str]] = {}
    for index, sample in enumerate(sft.samples):
        if sft.trained[sft.part(index)].any():
            said = [each["content"] for each in sample.messages if each["role"] == "assistant"]
            calls = [turn.call for turn in sample.turns]
            learned.setdefault(sample.task_id, {}).update(zip(calls, said[-len(calls) :], strict=True))
    assert learned  # a row of the few may be kept for evaluation
    for task, by_call in learned.items():
        expected = [message["content"] for message in demonstrations[task]]
        assert [said for _, said in sorted(by_call.items())] == expected[: len(by_call)]


@pytest.mark.parametrize(
    ("words", "text"), [(["--min-reward", 2], "got: 1 as the highest reward"), ([], "needs --min-reward")]
)
def test_why_no_conversations_are_written(first_run, tmp_path, words, text):
    with pytest.raises(RecordError, match=text):
        run_command(export, first_run, "--conversations", tmp_path / "rows.jsonl", *words)


def test_the_recipe_of_the_repository_loads():
    assert load_recipe("recipes/program/recipe.toml").env["name"] == "program"
