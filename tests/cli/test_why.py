"""`truing why` as a user meets it."""

import json

import pytest
from command import truing
from runs import MINI

import truing as package
from truing.errors import ProvenError
from truing.faults.planted import FAULTS
from truing.training.preflight import chance


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A healthy run, and one whose loss is turned round."""
    folder = tmp_path_factory.mktemp("why")
    table = {**MINI, "sft": {**MINI["sft"], "steps": 12}, "doctor": {"stop": False}}
    package.train(table, out=folder / "healthy", watch=lambda *_: None)
    with FAULTS["advantage-sign"].plant():
        package.train(table, rewards=[chance], out=folder / "ill", watch=lambda *_: None)
    return folder


def test_what_is_not_it_is_told_with_what_ruled_it_out(runs):
    told = truing("why", runs / "healthy")
    assert told.code == 0
    assert "grpo: the reward does not clearly go up" in told.out
    assert "ruled out a bug in ADV, " in told.out
    assert "rules are clean over up to 15 updates" in told.out
    assert "the cheapest test that is left: " in told.out


def test_a_proven_bug_comes_first_with_what_to_discard(runs):
    told = truing("why", runs / "ill")
    found = [line for line in told.out.splitlines() if line.startswith("found")]
    assert found[0].startswith("found     PROVEN MSK003")
    assert "MSK003: discard checkpoints of grpo after 0 updates, and all later; run again: grpo" in told.out


def test_json_has_every_hypothesis(runs):
    told = json.loads(truing("why", runs / "healthy", "--json").out)
    assert {"open", "ruled out"} <= {each["state"] for each in told["hypotheses"]}
    opened = [each["minutes"] for each in told["hypotheses"] if each["state"] == "open"]
    assert opened == sorted(opened)
    assert told["discard"] == []
    assert told["reward"].keys() == {"first", "last", "chance"}


def test_a_run_without_rewards_has_no_such_question(tmp_path):
    package.train({**MINI, "stages": ["sft"]}, out=tmp_path / "run", watch=lambda *_: None)
    told = truing("why", tmp_path / "run")
    assert told.code == 2
    assert "no update with a reward" in told.err


def test_of_a_run_that_was_stopped_before_any_reward_it_names_the_cause(tmp_path):
    with FAULTS["optimizer-skips"].plant(), pytest.raises(ProvenError):
        package.train(MINI, out=tmp_path / "run", watch=lambda *_: None)
    told = truing("why", tmp_path / "run")
    assert told.code == 2
    assert "it ended before, by OPT001" in told.err
