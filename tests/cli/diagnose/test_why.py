"""`truing why` on the command line."""

import json
import re
import shlex
from dataclasses import replace

import pytest
from command import truing
from runs import MINI

import truing as package
from dev.faults.planted import FAULTS
from truing.config import load_recipe, resolve
from truing.doctor.causes.commands import check_recipe, duration_text, train_again, training_minutes
from truing.doctor.causes.evaluation_small import CAUSE as EVALUATION_SMALL
from truing.doctor.causes.explain import CAUSES, why
from truing.doctor.causes.read_history import explained_stage, history_of_run
from truing.doctor.postmortem import diagnose_run
from truing.errors import ProvenError
from truing.trainer.preflight import random_reward
from truing.types.step_table import StepNumbers


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


def test_a_ruled_out_cause_is_printed_with_its_figures(runs):
    result = truing("why", runs / "healthy")
    assert result.code == 0
    assert result.out.startswith("grpo: the reward does not clearly go up: ")
    assert "      evaluation 0." in result.out
    assert "ruled out   the learning rate is 0: it is 0 in 0 of 3 steps, and at most 0.001" in result.out
    assert "ruled out   what these rules look for, in ADV, " in result.out
    assert "rules are clean over up to 15 steps; `truing check` names them" in result.out


def test_a_proven_bug_comes_first_with_what_to_discard(runs):
    result = truing("why", runs / "ill")
    lines = [line for line in result.out.splitlines() if line.startswith("found")]
    assert lines[0].startswith("found       PROVEN MSK003")
    assert "MSK003: discard checkpoints of grpo after 0 steps, and all later; run again: grpo" in result.out


def test_json_has_every_cause(runs):
    result = json.loads(truing("why", runs / "healthy", "--json").out)
    assert {"found", "cannot tell", "ruled out"} <= {each["state"] for each in result["causes"]}
    assert all(
        each["advice"]["text"] or each["outcomes"] for each in result["causes"] if each["state"] == "open"
    )
    assert result["discard"] == []
    assert result["reward"].keys() >= {"first", "last", "chance", "learns", "fell"}
    assert result["evaluation"].keys() >= {"mean", "low", "high", "significant"}
    assert result["summary"][0].startswith("the reward does not clearly go up")


def test_what_demonstrations_earned_at_the_start_is_on_record(runs):
    assert history_of_run(runs / "healthy", diagnose_run(runs / "healthy")).demonstrated == [1.0] * 8


def test_a_run_of_demonstrations_alone_is_explained_by_its_loss(tmp_path):
    package.train({**MINI, "stages": ["sft"]}, out=tmp_path / "run", on_event=lambda *_: None)
    result = truing("why", tmp_path / "run")
    assert result.code == 0
    assert result.out.startswith("sft: the loss on demonstrations goes from ")
    assert "     evaluation 0." in result.out
    assert "the loss on demonstrations" in result.out.partition("open        ")[2].splitlines()[0]
    refused = truing("why", tmp_path / "run", "--experiment")
    assert refused.code == 2
    assert "stages with a policy loss" in refused.err


@pytest.mark.parametrize(("threshold", "first"), [(2.0, "found"), (0.0, "open"), (1.0, "")])
def test_a_run_of_rejection_sampling_alone_is_explained_by_what_it_keeps(tmp_path, threshold, first):
    rft = {"steps": 3, "prompts_per_step": 4, "group_size": 4, "min_reward": threshold}
    out = tmp_path / "run"
    table = {**MINI, "stages": ["sft", "rft"], "rft": rft}
    package.train(table, out=out, rewards=[random_reward], on_event=lambda *_: None)
    lines = truing("why", out).out.splitlines()
    kept = [line for line in lines if "rejection sampling" in line]
    assert kept[0].startswith(first or "ruled out")
    assert "rft.min_reward=1" in "".join(lines) or not first


def test_a_run_that_has_not_reached_its_stage_with_a_reward_is_an_error():
    recipe = resolve({**MINI, "stages": ["sft", "grpo"]})
    assert explained_stage(recipe, [StepNumbers("sft", 0, {})]) == ""


def test_of_a_run_that_was_stopped_before_any_reward_it_names_the_cause(tmp_path):
    with FAULTS["optimizer-skips"].plant(), pytest.raises(ProvenError):
        package.train(MINI, out=tmp_path / "run", on_event=lambda *_: None)
    result = truing("why", tmp_path / "run")
    assert result.code == 2
    assert "it ended before, by OPT001" in result.err


def run_history(run):
    return history_of_run(run, diagnose_run(run))


def with_run(history, **facts):
    return replace(history, run=replace(history.facts, **facts))


def answers_of_examples(history):
    """What each cause says of its own examples, with the recipe and the place of a real run."""
    for cause in CAUSES.values():
        for make in (*cause.found, *cause.excluded):
            example = make()
            if example.run is not None and example.stage == history.stage:
                recipe = example.facts.recipe.model_copy(update={"env": history.facts.recipe.env})
                facts = replace(example.facts, recorded=history.facts.recorded, recipe=recipe)
                yield cause.answer(replace(example, source=history.source, run=facts))


def test_every_command_that_is_suggested_can_be_typed(runs):
    history = run_history(runs / "healthy")
    answers = [*why(history), *answers_of_examples(history)]
    every = {each.advice.text for each in answers if each and each.advice.text.startswith("truing ")}
    assert {shlex.split(test)[1] for test in every} == {"train", "check", "tokens", "eval"}
    for test in every:
        _, verb, target, *words = shlex.split(test)
        if verb == "train":
            load_recipe(target, words)  # every key and value is valid
        else:
            done = truing(verb, target, *words)
            assert done.code in (0, 1), (test, done.err)


def test_a_run_from_python_is_repeated_there(runs):
    history = run_history(runs / "ill")
    assert check_recipe(history).text == f'print(truing.check("{runs / "ill" / "recipe.toml"}", rewards=…))'
    again = "truing.train again, with the same rewards=, and with sft.steps=9"
    assert train_again(history, {"sft.steps": 9}, "").text == again
    both = with_run(history, given_in_python=("env", "rewards"))
    assert "with the same env= and rewards=" in train_again(both, {"sft.steps": 9}, "").text


def test_more_evaluation_tasks_than_there_are_are_not_asked_for(runs):
    few = EVALUATION_SMALL.answer(run_history(runs / "ill"))
    assert few.advice.text == ""
    assert few.because.endswith("and env.eval is 8")
    history = run_history(runs / "healthy")
    recipe = history.facts.recipe.model_copy(update={"env": {"eval": 10**6}})
    after_sft = EVALUATION_SMALL.answer(with_run(history, recipe=recipe)).advice
    assert re.fullmatch(r"evaluate the policy before the stage and after it on \d+ tasks", after_sft.text)
    alone = with_run(history, recipe=recipe.model_copy(update={"stages": ("grpo",)}))
    test = EVALUATION_SMALL.answer(alone).advice
    needed = int(re.search(r"eval.tasks=(\d+) --against \S+/recipe.toml$", test.text)[1])
    assert needed > recipe.eval.tasks
    minutes = 2 * history.facts.evaluation_seconds * needed / recipe.eval.tasks / 60
    assert test.minutes == pytest.approx(minutes)


def test_minutes_are_those_of_the_run(runs):
    history = run_history(runs / "healthy")
    seconds = {
        stage: [sum(row.seconds.values()) for row in history.facts.recorded if row.stage == stage]
        for stage in ("sft", "grpo")
    }
    whole = sum(map(sum, seconds.values())) + 3 * history.facts.evaluation_seconds
    assert training_minutes(history) == pytest.approx(whole / 60)
    twice = training_minutes(history, {"sft": 2 * len(seconds["sft"])})
    assert twice == pytest.approx((whole + sum(seconds["sft"])) / 60)
    assert training_minutes(with_run(history, recorded=history.steps)) is None  # of sft nothing is known
    assert [duration_text(each) for each in (0.3, 12.4, 150)] == [
        "less than a minute",
        "about 12 min",
        "about 2.5 h",
    ]
