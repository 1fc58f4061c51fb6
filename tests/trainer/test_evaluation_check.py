"""An evaluation is compared with its recipe."""

import math
from dataclasses import replace

import pytest
import torch

import truing
from dev.faults.planted import FAULTS
from dev.faults.run_fault import run_fault, table_of
from truing.errors import ModelError
from truing.trainer.evaluation_check import prove_evaluated
from truing.types.status import Status

NAMES = [name for name, fault in FAULTS.items() if fault.numbers == (102,)]


@pytest.mark.integration
@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_evaluation_is_refused(name):
    outcome = run_fault(FAULTS[name])
    assert outcome.caught, outcome.error


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """Recipe, policy and sampler of a healthy evaluation with two answers a task; its groups and rewards."""
    seen = []

    def keep(recipe, policy, sampler, groups, reward):
        prove_evaluated(recipe, policy, sampler, groups, reward)
        seen.append(((recipe, policy, sampler), groups, reward))

    table = table_of(FAULTS["evaluated-greedily"]) | {"stages": ["sft"]}
    table["eval"] |= {"tasks": 3, "samples": 2}
    out = tmp_path_factory.mktemp("evaluated") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("truing.trainer.evaluate.prove_evaluated", keep)
        truing.train(table, out=out, on_event=lambda kind, facts: None)
    (only,) = seen
    return only


def grade_again(sampler, groups):
    """Let the sampler remember what graders return, as after a collection."""
    for rollout in (each for group in groups for each in group.rollouts):
        sampler.grades.grade(rollout)


def changed(groups, **changes):
    first, *others = groups
    one, *rest = first.rollouts
    return [replace(first, rollouts=(replace(one, **changes), *rest)), *others]


@pytest.mark.integration
def test_a_lost_rollout_is_reported(evaluated):
    opened, (first, *others), reward = evaluated
    with pytest.raises(ModelError, match="tasks, rollouts or random numbers"):
        prove_evaluated(*opened, [replace(first, rollouts=first.rollouts[:1]), *others], reward)


def test_a_lost_task_is_reported(evaluated):
    opened, groups, reward = evaluated
    with pytest.raises(ModelError, match="tasks, rollouts or random numbers"):
        prove_evaluated(*opened, groups[:-1], reward)


def test_other_sampling_parameters_are_reported(evaluated):
    opened, groups, reward = evaluated
    params = replace(groups[0].rollouts[0].sampling_params, max_new_tokens=2)
    with pytest.raises(ModelError, match="sampling parameters"):
        prove_evaluated(*opened, changed(groups, sampling_params=params), reward)


def test_a_policy_that_has_moved_since_is_reported(evaluated):
    opened, groups, reward = evaluated
    weight = next(iter(opened[1].parameters.values()))
    before = weight.detach().clone()
    try:
        with torch.no_grad():
            weight.flatten()[0] += 1
        with pytest.raises(ModelError, match="weights"):
            prove_evaluated(*opened, groups, reward)
    finally:
        with torch.no_grad():
            weight.copy_(before)


def test_ids_that_do_not_follow_from_their_random_numbers_are_reported(evaluated):
    opened, groups, reward = evaluated

    def next_ids(rollout):
        turns = [replace(turn, token_ids=turn.token_ids + 1) for turn in rollout.turns]
        return replace(rollout, turns=tuple(turns))

    other = [replace(group, rollouts=tuple(map(next_ids, group.rollouts))) for group in groups]
    with pytest.raises(ModelError, match="draws"):
        prove_evaluated(*opened, other, reward)


def test_samples_of_other_ids_than_were_sampled_are_reported(evaluated):
    given, groups, reward = evaluated
    with FAULTS["retokenised"].plant(), pytest.raises(ModelError, match="has other ids than were sampled"):
        prove_evaluated(*given, groups, reward)


@pytest.mark.parametrize("wrong", [0.25, 5.0])
def test_another_mean_is_reported(evaluated, wrong):
    opened, groups, reward = evaluated
    grade_again(opened[2], groups)
    with pytest.raises(ModelError, match="means"):
        prove_evaluated(*opened, groups, {**reward, groups[0].task.task_id: wrong})


def test_failed_rollouts_are_in_no_mean(evaluated):
    opened, groups, reward = evaluated
    failed = changed(groups, status=Status.ERROR, reward=math.nan)
    rest = failed[0].rollouts[1].reward
    grade_again(opened[2], groups)
    prove_evaluated(*opened, failed, {**reward, failed[0].task.task_id: rest})


def test_another_reward_than_a_grader_returned_is_reported(evaluated):
    opened, groups, reward = evaluated
    grade_again(opened[2], groups)
    with pytest.raises(ModelError, match="rewards"):
        prove_evaluated(*opened, changed(groups, reward=0.25), reward)
