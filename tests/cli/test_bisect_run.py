"""`truing bisect` and `truing compare` as a user types them."""

import json

from typer.testing import CliRunner

import truing
from truing.cli import app
from truing.faults.planted import FAULTS
from truing.training.preflight import chance


def invoke(*words):
    return CliRunner().invoke(app, words)


def test_a_guilty_part_is_named_in_text_and_json_with_exit_1(mini, tmp_path):
    with FAULTS["mask-shifted"].plant():
        run = truing.train(
            mini(doctor={"stop": False}), rewards=[chance], out=tmp_path / "run", watch=lambda *_: None
        ).run
    result = invoke("bisect", str(run))
    assert result.exit_code == 1
    assert "update 1 of grpo" in result.stdout
    assert "guilty: loss" in result.stdout
    told = json.loads(invoke("bisect", str(run), "--json").stdout)
    assert (told["guilty"], told["stage"], told["update"]) == ("loss", "grpo", 1)


def told_rewards_are_from_python(run):
    parts = json.loads(invoke("bisect", str(run), "--json").stdout)["parts"]
    return "from Python" in next(each["told"] for each in parts if each["part"] == "reward")


def test_two_runs_part_at_a_key_a_step_and_a_token(mini, tmp_path):
    def trained(name, **changes):
        return truing.train(mini(**changes), rewards=[chance], out=tmp_path / name, watch=lambda *_: None).run

    one, twin, other = trained("one"), trained("twin"), trained("other", sampling={"temperature": 0.8})
    assert told_rewards_are_from_python(one)
    same = invoke("compare", str(one), str(twin))
    assert same.exit_code == 0, same.stdout
    assert "updates are the same, token by token" in same.stdout
    told = json.loads(invoke("compare", str(one), str(other), "--json").stdout)
    assert [each["key"] for each in told["recipe"]] == ["sampling.temperature"]
    assert told["parting"]["what"] == "token_ids"
    assert told["parting"]["sample_id"]
    assert (told["parting"]["stage"], told["parting"]["step"], told["same_updates"]) == ("grpo", 0, 3)
    assert invoke("bisect", str(one), str(other)).exit_code == 1


def test_later_partings_are_found_where_they_begin(mini, tmp_path):
    def trained(name, **changes):
        return truing.train(mini(**changes), rewards=[chance], out=tmp_path / name, watch=lambda *_: None).run

    table = mini()
    rate = table["grpo"]["learning_rate"]
    runs = trained("one"), trained("other", grpo={"learning_rate": rate * (1 + 1e-3)})
    told = json.loads(invoke("compare", *map(str, runs), "--json").stdout)
    assert [each["key"] for each in told["recipe"]] == ["grpo.learning_rate"]
    assert (told["parting"]["stage"], told["parting"]["step"]) == ("grpo", 0)
    assert told["parting"]["what"] == "weights after the update"
    assert told["same_updates"] == table["sft"]["steps"]
