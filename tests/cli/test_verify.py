"""`truing verify` and `truing scorecard` as a user meets them."""

import json

import pytest
from command import truing

from truing.probes.ladder import named
from truing.record import RunReader


@pytest.fixture(autouse=True)
def few_probes(monkeypatch):
    """The ladder is climbed in tests/probes."""
    monkeypatch.setattr("truing.verify.LADDER", named(["P0"]))


def run(toml, tmp_path, *words):
    return truing("verify", toml, "--steps", 12, "--out", tmp_path / "run", *words)


def test_a_sound_recipe_is_accepted(toml, tmp_path):
    told = run(toml(entropy={"coef": 0.01}), tmp_path)
    assert told.code == 0, told.out + told.err
    assert [told.out.count(word) for word in ("checks: passed", "10 steps: passed", "12 steps: passed")] == [
        1,
        1,
        1,
    ]
    assert "after_grpo: reward" in told.out
    assert "the recipe is accepted" in told.out
    steps = RunReader(tmp_path / "run").steps()
    assert sum(step.stage == "grpo" for step in steps) == 12


def test_what_misses_a_criterion_goes_no_further_than_ten_steps(toml, tmp_path):
    # the second step finds the policy beyond its cap, and makes no update
    far = toml(entropy={"coef": 0.1}, kl={"cap": 1e-12, "cap_action": "skip"}, grpo={"learning_rate": 0.01})
    told = run(far, tmp_path, "--json")
    assert told.code == 1
    facts = json.loads(told.out)
    assert [(phase["name"], phase["passed"]) for phase in facts["phases"]] == [
        ("checks", True),
        ("10 steps", False),
    ]
    failed = [c["name"] for c in facts["phases"][1]["criteria"] if c["verdict"] == "fail"]
    assert failed == ["KL to the reference"]
    assert "resume" not in told.err  # it was not stopped by accident
    assert sum(step.stage == "grpo" for step in RunReader(tmp_path / "run").steps()) == 10


def test_findings_end_it_before_anything_is_trained(toml, tmp_path):
    told = run(toml(sampling={"max_new_tokens": 1}), tmp_path)
    assert told.code == 1
    assert "checks: failed" in told.out
    assert "demonstrations" in told.out
    assert not (tmp_path / "run").exists()


def test_a_failing_probe_ends_it_too(toml, tmp_path, monkeypatch):
    from truing.probes.outcome import Outcome, exactly

    outcome = Outcome("P0", "grpo", (exactly("weights that moved", 3.0),))
    monkeypatch.setattr("truing.verify.climb", lambda probes, algos: [outcome])
    told = run(toml(), tmp_path)
    assert told.code == 1
    assert "P0 of grpo: weights that moved is 3, not 0" in told.out


def test_what_cannot_run_is_neither(toml, tmp_path):
    told = run(toml(stages=["sft"]), tmp_path)
    assert told.code == 2
    assert "no stage to verify" in told.err
    assert run(tmp_path / "nowhere.toml", tmp_path).code == 2


def test_the_scorecard_of_a_run(finished, tmp_path):
    told = truing("scorecard", finished.run)
    assert told.code == 0
    assert "alignment" in told.out
    assert "as it should read" in told.out
    facts = json.loads(truing("scorecard", finished.run, "--json").out)
    assert {each["name"]: each["verdict"] for each in facts}["alignment"] == "pass"
    watched = truing("scorecard", finished.run, "--watch")  # it has ended: shown once
    assert watched.code == 0


def test_a_failing_criterion_is_an_exit_code(finished):
    path = finished.run / "steps.jsonl"
    path.write_text(path.read_text().replace('"alignment": 1.0', '"alignment": 0.5'))
    assert truing("scorecard", finished.run).code == 1
