"""`truing why` on the command line."""

import json
import math
import shlex
from dataclasses import replace

import pytest
from command import truing
from runs import MINI

import truing as package
from dev.faults.planted import FAULTS
from truing.config import load_recipe
from truing.doctor.hypotheses.candidates import environment, evaluation, lengths, update_size
from truing.doctor.hypotheses.explain import why
from truing.doctor.hypotheses.group_signal import group_signal
from truing.doctor.hypotheses.run_history import RunHistory
from truing.doctor.hypotheses.test_cost import duration_text, retrain_command, training_minutes
from truing.doctor.postmortem import diagnose_run
from truing.errors import ProvenError
from truing.trainer.preflight import random_reward


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A healthy run, and one with the sign of its loss flipped."""
    folder = tmp_path_factory.mktemp("why")
    table = {**MINI, "sft": {**MINI["sft"], "steps": 12}, "doctor": {"stop": False}}
    more = {**table, "env": {**MINI["env"], "eval": 24}}  # than it is evaluated on
    package.train(more, out=folder / "healthy", on_event=lambda *_: None)
    with FAULTS["advantage-sign"].plant():
        package.train(table, rewards=[random_reward], out=folder / "ill", on_event=lambda *_: None)
    return folder


def test_a_ruled_out_cause_is_printed_with_its_reason(runs):
    result = truing("why", runs / "healthy")
    assert result.code == 0
    assert "grpo: the reward does not clearly go up" in result.out
    assert "ruled out a bug in ADV, " in result.out
    assert "rules are clean over up to 15 steps" in result.out
    assert "cheapest open test: " in result.out


def test_a_proven_bug_comes_first_with_what_to_discard(runs):
    result = truing("why", runs / "ill")
    lines = [line for line in result.out.splitlines() if line.startswith("found")]
    assert lines[0].startswith("found     PROVEN MSK003")
    assert "MSK003: discard checkpoints of grpo after 0 steps, and all later; run again: grpo" in result.out


def test_json_has_every_hypothesis(runs):
    result = json.loads(truing("why", runs / "healthy", "--json").out)
    assert {"open", "ruled out"} <= {each["state"] for each in result["hypotheses"]}
    opened = [each["minutes"] for each in result["hypotheses"] if each["state"] == "open" and each["test"]]
    assert opened == sorted(opened, key=lambda minutes: math.inf if minutes is None else minutes)
    assert any(opened)
    assert result["discard"] == []
    assert result["reward"].keys() >= {"first", "last", "chance", "learns", "fell"}


def test_a_run_without_rewards_is_an_error(tmp_path):
    package.train({**MINI, "stages": ["sft"]}, out=tmp_path / "run", on_event=lambda *_: None)
    result = truing("why", tmp_path / "run")
    assert result.code == 2
    assert "no step with a reward" in result.err


def test_of_a_run_that_was_stopped_before_any_reward_it_names_the_cause(tmp_path):
    with FAULTS["optimizer-skips"].plant(), pytest.raises(ProvenError):
        package.train(MINI, out=tmp_path / "run", on_event=lambda *_: None)
    result = truing("why", tmp_path / "run")
    assert result.code == 2
    assert "it ended before, by OPT001" in result.err


def run_history(run, **changes):
    history = RunHistory.from_run(run, diagnose_run(run))
    metrics = {name: changes.pop(name) for name in list(changes) if "/" in name}
    steps = [replace(row, metrics=row.metrics | metrics) for row in history.steps]
    recipe = history.recipe.model_copy(update=changes.pop("recipe", {}))
    return replace(history, steps=steps, recipe=recipe, **changes)


def run_histories(run):
    """The run unchanged, and with metrics of each fault."""
    hard = {"group/zero_variance_share": 0.9, "group/all_right_share": 0.0, "group/all_wrong_share": 0.95}
    easy = {"group/zero_variance_share": 0.9, "group/all_right_share": 0.9, "group/all_wrong_share": 0.0}
    yield run_history(run)
    yield run_history(run, **hard, **{"ended/error": 0.5, "truncated/share": 0.9})
    yield run_history(run, **easy)


def test_every_command_that_is_suggested_can_be_typed(runs):
    every = {each.test for ill in ("healthy", "ill") for each in why(run_history(runs / ill)) if each.test}
    every |= {each.test for history in run_histories(runs / "healthy") for each in why(history) if each.test}
    commands = (test for test in every if not test.startswith("truing."))
    assert {shlex.split(test)[1] for test in commands} >= {"train", "eval", "check", "explain"}
    of_python = {test for test in every if test.startswith("truing.")}  # the rewards of the ill run
    assert of_python
    assert all("rewards=" in test for test in of_python)
    for test in every - of_python:
        program, verb, target, *words = shlex.split(test)
        assert program == "truing"
        if verb == "train":
            load_recipe(target, words)  # every key and value is valid
        else:
            done = truing(verb, target, *words)
            assert done.code in (0, 1), (test, done.err)


def test_more_evaluation_tasks_than_there_are_are_not_asked_for(runs):
    (few,) = evaluation(run_history(runs / "ill"))
    assert few.test == ""
    assert "would be needed, and env.eval is " in few.because
    history = run_history(runs / "healthy")
    (more,) = evaluation(replace(history, recipe=history.recipe.model_copy(update={"env": {"eval": 10**6}})))
    needed = int(more.test.rpartition("=")[2])
    assert needed > history.recipe.eval.tasks
    assert more.minutes == pytest.approx(history.evaluation_seconds * needed / history.recipe.eval.tasks / 60)


def test_minutes_are_those_of_the_run(runs):
    history = run_history(runs / "healthy")
    seconds = {
        stage: [sum(row.seconds.values()) for row in history.recorded if row.stage == stage]
        for stage in ("sft", "grpo")
    }
    whole = sum(map(sum, seconds.values())) + 3 * history.evaluation_seconds
    assert training_minutes(history) == pytest.approx(whole / 60)
    twice = training_minutes(history, {"sft": 2 * len(seconds["sft"])})
    assert twice == pytest.approx((whole + sum(seconds["sft"])) / 60)
    assert (
        training_minutes(replace(history, recorded=history.steps)) is None
    )  # the seconds of sft are unknown
    assert [duration_text(each) for each in (0.3, 12.4, 150)] == [
        "less than a minute",
        "about 12 min",
        "about 2.5 h",
    ]


def test_a_recipe_that_names_no_tasks_is_run_again_from_python(runs):
    history = replace(run_history(runs / "healthy"), given_in_python=("env", "rewards"))
    again = "truing.train again, with the same env= and rewards=, and with sft.steps=9"
    assert retrain_command(history, "sft.steps=9") == again
    for ask in (group_signal, lengths, environment):
        assert not any(each.test.startswith("truing check") for each in ask(history))


@pytest.mark.parametrize(
    ("metrics", "sign"),
    [
        ({"kl_all/k3": 3.1}, "3.1 nats per token from its reference"),
        ({"clip/clipped_share": 0.42}, "42% of tokens are clipped"),
    ],
)
def test_updates_that_moved_the_policy_far_are_not_too_small(runs, metrics, sign):
    history = run_history(runs / "healthy", **metrics)
    assert not history.reward_trend.learns
    found = {each.name: each for each in update_size(history)}
    assert found["optimizer steps are too small"].state == "ruled out"
    assert found["optimizer steps are too large"].state == "open"
    assert sign in found["optimizer steps are too large"].because
    rate = history.recipe.grpo.learning_rate / 10
    assert f"learning_rate={rate:g}" in found["optimizer steps are too large"].test
