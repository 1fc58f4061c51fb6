"""`truing bisect` and `truing compare` on the command line."""

import importlib
import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import truing
from dev.faults.planted import FAULTS
from truing.cli import app
from truing.doctor.bisect import RULES_OF
from truing.doctor.bisect_report import code_location
from truing.doctor.rules import len003
from truing.doctor.verdict import Verdict
from truing.record import RunReader
from truing.trainer.preflight import random_reward

pytestmark = pytest.mark.integration


def invoke(*words):
    return CliRunner().invoke(app, words)


def test_the_part_that_differs_is_named_in_text_and_json_with_exit_1(mini, tmp_path):
    with FAULTS["mask-shifted"].plant():
        run = truing.train(
            mini(doctor={"stop": False}),
            rewards=[random_reward],
            out=tmp_path / "run",
            on_event=lambda *_: None,
        ).run
    result = invoke("bisect", str(run))
    assert result.exit_code == 1
    assert "step 1 of grpo" in result.stdout
    assert "differs: loss (computed in truing.ops.losses:policy_loss)" in result.stdout
    output = json.loads(invoke("bisect", str(run), "--json").stdout)
    assert (output["guilty"], output["stage"], output["step"]) == ("loss", "grpo", 1)
    assert (output["home"], output["unexplained"]) == ("truing.ops.losses:policy_loss", [])


@pytest.fixture
def cut_is_suspected(monkeypatch):
    """All rollouts of these runs are truncated: as if a rule suspected a fault in that."""
    monkeypatch.setattr(len003, "Verdict", SimpleNamespace(FACT=Verdict.SUSPECT))


@pytest.mark.usefixtures("cut_is_suspected")
def test_a_finding_that_no_swap_explains_is_printed_with_exit_1(mini, tmp_path):
    run = truing.train(mini(), out=tmp_path / "run", on_event=lambda *_: None).run
    result = invoke("bisect", str(run), "--stage", "grpo", "--step", "3")
    assert result.exit_code == 1
    output = "rules have findings, and no swapped part differs: SUSPECT LEN003 (truing check "
    assert output in result.stdout
    assert json.loads(invoke("bisect", str(run), "--json").stdout)["unexplained"] == ["LEN003"]
    clean = invoke("bisect", str(run), "--stage", "sft", "--step", "1")
    assert clean.exit_code == 0
    assert "no part differs from its second implementation" in clean.stdout


@pytest.mark.usefixtures("cut_is_suspected")
def test_what_is_suppressed_needs_no_part_that_differs(mini, tmp_path):
    table = mini(doctor={"suppress": {"LEN003": "answers are short on purpose"}})
    run = truing.train(table, out=tmp_path / "run", on_event=lambda *_: None).run
    assert invoke("bisect", str(run)).exit_code == 0


@pytest.mark.parametrize("stage", ["sft", "rft", "reinforce", "rloo", "grpo", "ppo"])
def test_every_part_is_at_its_code_location(stage):
    for part in RULES_OF:
        if part == "advantage" and stage in ("sft", "rft"):
            continue  # there are none
        module, _, name = code_location(part, stage).partition(":")
        assert hasattr(importlib.import_module(module), name), (part, stage)


def rewards_are_from_python(run):
    words = ["bisect", str(run), "--stage", "grpo", "--step", "1", "--json"]
    parts = json.loads(invoke(*words).stdout)["parts"]
    return "are Python functions" in next(each["detail"] for each in parts if each["part"] == "reward")


def test_two_runs_first_differ_at_a_key_a_step_and_a_token(mini, tmp_path):
    def trained(name, **changes):
        return truing.train(
            mini(**changes), rewards=[random_reward], out=tmp_path / name, on_event=lambda *_: None
        ).run

    one, twin, other = trained("one"), trained("twin"), trained("other", sampling={"temperature": 0.8})
    assert rewards_are_from_python(one)
    same = invoke("compare", str(one), str(twin))
    assert same.exit_code == 0, same.stdout
    assert "steps are the same, token by token" in same.stdout
    output = json.loads(invoke("compare", str(one), str(other), "--json").stdout)
    assert [each["key"] for each in output["recipe"]] == ["sampling.temperature"]
    at = output["first_difference"]
    assert at["what"] == "token_ids"
    assert at["sample_id"]
    assert (at["stage"], at["step"], output["same_steps"]) == ("grpo", 1, 3)


def test_a_later_first_difference_is_found(mini, tmp_path):
    def trained(name, **changes):
        return truing.train(
            mini(**changes), rewards=[random_reward], out=tmp_path / name, on_event=lambda *_: None
        ).run

    table = mini()
    rate = table["grpo"]["learning_rate"]
    runs = trained("one"), trained("other", grpo={"learning_rate": rate * (1 + 1e-3)})
    output = json.loads(invoke("compare", *map(str, runs), "--json").stdout)
    assert [each["key"] for each in output["recipe"]] == ["grpo.learning_rate"]
    assert (output["first_difference"]["stage"], output["first_difference"]["step"]) == ("grpo", 1)
    assert output["first_difference"]["what"] == "weights after the step"
    assert output["same_steps"] == table["sft"]["steps"]


def test_runs_of_two_seeds_are_compared_by_their_results(trained_run):
    runs = [trained_run(str(seed), seed=seed).run for seed in (0, 1)]
    output = invoke("compare", *map(str, runs)).stdout
    assert "recipe  seed: 0 | 1" in output
    assert "different seeds: no token-by-token comparison" in output
    assert "parts: " not in output
    for name in ("eval after_grpo", "sft loss/supervised", "grpo reward/mean", "fact LEN003"):
        (line,) = (line for line in output.splitlines() if line.startswith(f"  {name} "))
        assert " | " in line
    pairs = json.loads(invoke("compare", *map(str, runs), "--json").stdout)["beside"]
    losses = next(each for each in pairs if each["name"] == "sft loss/supervised")
    for run, value in zip(runs, (losses["first"], losses["second"]), strict=True):
        rows = [row.metrics["loss/supervised"] for row in RunReader(run).steps() if row.stage == "sft"]
        assert value == pytest.approx(sum(rows) / len(rows), rel=1e-3)
