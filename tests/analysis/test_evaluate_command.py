"""The line of a finished run that says how to evaluate it."""

import json

import pytest

import truing
from truing.analysis.evaluate_command import evaluate_command


def length(rollout, task):
    return float(len(rollout.text))


@pytest.mark.integration
def test_a_run_from_its_recipe_is_evaluated_by_a_command(trained_run):
    run = trained_run("run").run
    assert json.loads((run / "run.json").read_text())["given_in_python"] == []
    assert evaluate_command(run) == f"truing eval {run}"


def test_what_was_given_in_python_is_given_again(mini, tmp_path):
    run = truing.train(mini(), rewards=[length], out=tmp_path / "run", on_event=lambda *_: None).run
    assert evaluate_command(run) == f'truing.evaluate("{run}", rewards=…)'


@pytest.mark.parametrize("reward", ["exact", "rewards_of_mine:score"])
def test_a_recipe_that_imports_code_needs_trust(trained_run, reward):
    run = trained_run("run").run
    facts = json.loads((run / "run.json").read_text())
    facts["recipe"]["env"] = {"name": "dataset", "data": "rows.jsonl", "rewards": [reward]}
    (run / "run.json").write_text(json.dumps(facts))
    expected = " --trust" if "mine" in reward else ""
    assert evaluate_command(run) == f"truing eval {run}{expected}"
