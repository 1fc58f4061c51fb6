"""`truing verify` and `truing scorecard` on the command line."""

import json
import re
import tomllib

import pytest
from command import truing
from folders import ROOT

from dev.probes.run_probes import probes_by_name
from truing import api
from truing.analysis.train_result import TrainResult
from truing.checks import CheckReport, CheckResult, Finding
from truing.config import resolve
from truing.lab import acceptance as verify_module
from truing.record import RunReader

pytestmark = pytest.mark.integration

TINY = (ROOT / "recipes/tiny.toml").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def few_probes(monkeypatch):
    """The other probes run in tests/probes."""
    monkeypatch.setattr("dev.probes.of_stage.PROBES", probes_by_name(["P0"]))


def run(toml, tmp_path, *words):
    return truing("verify", toml, "--steps", 12, "--out", tmp_path / "run", *words)


@pytest.mark.slow
def test_a_sound_recipe_is_accepted(toml, tmp_path):
    result = run(toml(sft={"steps": 60, "batch_size": 12}), tmp_path)  # which has a reward after it
    assert result.code == 0, result.out + result.err
    assert [
        result.out.count(word) for word in ("checks: passed", "10 steps: passed", "12 steps: passed")
    ] == [
        1,
        1,
        1,
    ]
    assert "after_grpo: reward" in result.out
    assert "the recipe is accepted" in result.out
    steps = RunReader(tmp_path / "run").steps()
    assert sum(step.stage == "grpo" for step in steps) == 12


@pytest.mark.slow
def test_a_recipe_that_misses_a_criterion_goes_no_further_than_ten_steps(toml, tmp_path):
    idle = toml(gates={"min_trained_tokens": 10_000})  # no step ever has so many
    result = run(idle, tmp_path, "--json")
    assert result.code == 1
    facts = json.loads(result.out)
    assert [(phase["name"], phase["passed"]) for phase in facts["phases"]] == [
        ("checks", True),
        ("10 steps", False),
    ]
    failed = [c["name"] for c in facts["phases"][1]["criteria"] if c["verdict"] == "fail"]
    assert failed == ["policy loss"]
    assert "resume" not in result.err  # it was not stopped by accident
    assert sum(step.stage == "grpo" for step in RunReader(tmp_path / "run").steps()) == 10


@pytest.mark.slow
def test_a_stage_is_compared_with_the_policy_before_it(toml, tmp_path, monkeypatch):
    table = {}
    monkeypatch.setattr(
        "truing.lab.acceptance._before_and_after",
        lambda result, recipe: table.update(e=result.evaluations) or None,
    )
    run(toml(sft={"steps": 60, "batch_size": 12}, eval={"every": 5}), tmp_path)
    monkeypatch.undo()
    assert "grpo@10" in table["e"]
    result = TrainResult(tmp_path / "run", table["e"])
    recipe = resolve({**tomllib.loads((tmp_path / "recipe.toml").read_text())})
    pair = verify_module._before_and_after(result, recipe)
    assert pair == (table["e"]["after_sft"], table["e"]["after_grpo"])


@pytest.mark.slow
def test_findings_end_it_before_anything_is_trained(toml, tmp_path):
    result = run(toml(sampling={"max_new_tokens": 1}), tmp_path)
    assert result.code == 1
    assert "checks: failed" in result.out
    assert "demonstrations" in result.out
    assert not (tmp_path / "run").exists()


def test_a_failing_probe_ends_it_too(toml, tmp_path, monkeypatch):
    from dev.probes.result import ProbeOutcome, exactly

    outcome = ProbeOutcome("P0", "grpo", (exactly("weights that moved", 3.0),))
    monkeypatch.setattr("dev.probes.of_stage.run_probes", lambda probes, algos: [outcome])
    result = run(toml(), tmp_path)
    assert result.code == 1
    assert "P0 of grpo: weights that moved is 3, not 0" in result.out


def test_without_a_clone_no_probe_runs_and_the_output_says_so(toml, tmp_path, monkeypatch):
    monkeypatch.setattr("truing.utils.repository.REPOSITORY", tmp_path)
    result = run(toml(sampling={"max_new_tokens": 1}), tmp_path)
    assert "no probes: they need a clone" in result.out


def test_what_cannot_run_is_neither(toml, tmp_path):
    result = run(toml(stages=["sft"]), tmp_path)
    assert result.code == 2
    assert "no stage to verify" in result.err
    assert run(tmp_path / "nowhere.toml", tmp_path).code == 2


def test_the_scorecard_of_a_run(finished, tmp_path):
    result = truing("scorecard", finished.run)  # of a run without reward, which it states
    assert result.code == 1
    assert re.search(r"fail +policy loss +no_signal 3; reward 0.000 → 0.000", result.out)
    assert "alignment" in result.out
    assert "expected" in result.out
    facts = json.loads(truing("scorecard", finished.run, "--json").out)
    assert {each["name"]: each["verdict"] for each in facts}["alignment"] == "pass"


def test_a_passing_run_is_exit_0_and_a_failing_criterion_1(mini, tmp_path):
    run = api.train(mini(sft={"steps": 60, "batch_size": 12}), out=tmp_path / "run").run
    assert truing("scorecard", run).code == 0
    path = run / "steps.jsonl"
    path.write_text(path.read_text().replace('"alignment": 1.0', '"alignment": 0.5'))
    assert truing("scorecard", run).code == 1


def test_findings_of_the_checks_are_sentences(monkeypatch):
    finding = Finding("task-1", "the demonstration earns nothing", "0", "1 of exact", "fix the reward")
    report = CheckReport({"the demonstration scores full": CheckResult(8, (finding,) * 8)})
    monkeypatch.setattr(verify_module, "check", lambda recipe: report)
    lines = verify_module._checks(resolve(tomllib.loads(TINY)), "grpo", None).lines
    assert "✗ the demonstration scores full: task-1" in lines
    assert "  and 5 more: --json lists all" in lines
    assert "Finding(" not in "\n".join(lines)
