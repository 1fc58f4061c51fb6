"""The samples of a step: which tasks, in which order, and the tokens of their demonstrations."""

import dataclasses

import pytest
import torch

from truing.algos import ALGORITHMS, StepConfig
from truing.envs import env_from_recipe
from truing.errors import DataError
from truing.rollouts.step_samples import collect_step_samples
from truing.trainer.session import open_session
from truing.types.status import FinishReason
from truing.types.token import Origin


@pytest.fixture
def session(recipe):
    made = recipe()
    session = open_session(made, env_from_recipe(made))
    session.publish(0)
    return session


def draw(session, stage, **changes):
    """Return the samples of a stage's first step, by a sampler with changes."""
    recipe, sampler = session.recipe, dataclasses.replace(session.sampler, **changes)
    setting = StepConfig.from_recipe(recipe, stage)
    return collect_step_samples(sampler, ALGORITHMS[stage], setting, stage, 0, recipe.episode.mask)


def test_an_epoch_gives_each_task_once_and_the_next_another_order(session):
    sampler = session.sampler
    total = len(sampler.train_tasks)
    names = [task.task_id for step in range(2 * total // 6) for task in sampler.tasks_of_step("sft", step, 6)]
    first, second = names[:total], names[total:]
    assert sorted(first) == sorted(second) == sorted(task.task_id for task in sampler.train_tasks)
    assert first != second


def test_the_tasks_of_a_step_do_not_depend_on_the_steps_before(session):
    later = session.sampler.tasks_of_step("grpo", 5, 3)
    for step in range(5):
        session.sampler.tasks_of_step("grpo", step, 3)
    assert session.sampler.tasks_of_step("grpo", 5, 3) == later
    assert session.sampler.tasks_of_step("sft", 5, 3) != later


def test_a_step_may_ask_for_more_tasks_than_there_are(session):
    assert len(session.sampler.tasks_of_step("sft", 0, 60)) == 60


def test_a_demonstration_is_what_the_policy_would_draw_to_say_it(session):
    drawn = draw(session, "sft")
    assert len(drawn.samples) == 6
    assert all(turn.finish_reason is FinishReason.DEMO for s in drawn.samples for turn in s.turns)
    stop = session.policy.loaded.stop_ids[0]
    for sample in drawn.samples:
        demonstrated = sample.token_ids[sample.origin == Origin.DEMO].tolist()
        text = drawn.tasks[sample.task_id].demonstration
        assert demonstrated == [*session.policy.loaded.tokenizer(text)["input_ids"], stop]
        assert torch.equal(sample.supervised_mask, sample.origin == Origin.DEMO)
        assert not sample.policy_mask.any()


def test_sft_and_rl_show_the_policy_the_same_prompt(session):
    """One renderer: for one task, the ids before the answer are the same in both."""
    task = session.sampler.train_tasks[0]
    first = [draw(session, stage, train_tasks=[task]).samples[0] for stage in ("sft", "grpo")]
    assert torch.equal(*(sample.token_ids[: sample.prompt_length] for sample in first))


def test_rollouts_come_in_groups_of_one_task(session):
    drawn = draw(session, "grpo")
    groups = {}
    for sample in drawn.samples:
        groups.setdefault(sample.group_id, []).append(sample)
        assert drawn.rollouts[sample.rollout_id].task is drawn.tasks[sample.task_id]
    assert [len(group) for group in groups.values()] == [4, 4, 4]
    assert all(len({sample.task_id for sample in group}) == 1 for group in groups.values())


def test_a_task_without_a_demonstration_cannot_be_trained_on(session):
    bare = [dataclasses.replace(task, demonstration=None) for task in session.sampler.train_tasks]
    with pytest.raises(DataError, match="has no demonstration"):
        draw(session, "sft", train_tasks=bare)


def test_a_demonstration_longer_than_the_context_is_an_error_and_never_cut(session):
    longest = max(len(sample) for sample in draw(session, "sft").samples)
    for room, fits in ((longest, True), (longest - 1, False)):
        if fits:
            assert draw(session, "sft", context_length=room).samples
            continue
        with pytest.raises(DataError, match="longer than the context") as error:
            draw(session, "sft", context_length=room)
        assert error.value.got == f"{longest} tokens with its prompt"
