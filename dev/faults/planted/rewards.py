"""Rewards on their way from the grader to the loss."""

from contextlib import nullcontext
from dataclasses import replace
from statistics import fmean

import numpy as np

from dev.faults.fault import Fault, patched
from truing.types.status import Status
from truing.utils.rng import seed_of


def generous(rollout, task):
    """Return 1 for a rollout cut at the limit."""
    return float(rollout.status == "truncated")


CUT_ONES_REWARDED = Fault(
    name="cut-ones-rewarded",
    numbers=(16,),
    what="cut rollouts earn the full reward",
    plant=nullcontext,
    expected=("RWD001",),
    changes={"sft.steps": 12, "grpo.group_size": 16},
    reward=generous,
)


def _evaluation_trained_on(real):
    def open_session(recipe, env, *args):
        session = real(recipe, env, *args)
        sampler = session.sampler
        tasks = [*sampler.train_tasks[:4], *sampler.eval_tasks]
        return replace(session, sampler=replace(sampler, train_tasks=tasks))

    return open_session


EVALUATION_TRAINED_ON = Fault(
    name="evaluation-trained-on",
    numbers=(65,),
    what="evaluation tasks are among the trained ones",
    plant=lambda: patched("truing.trainer.run:open_session", _evaluation_trained_on),
    expected=("RWD007",),
)


def _evaluation_sampled(real):
    def tasks_of_step(sampler, stage, step, count):
        return [*real(sampler, stage, step, count)[1:], sampler.eval_tasks[0]]

    return tasks_of_step


EVALUATION_SAMPLED = Fault(
    name="evaluation-sampled",
    numbers=(65,),
    what="a step samples a task of the evaluation, which the training tasks do not have",
    plant=lambda: patched("truing.rollouts.sampler:Sampler.tasks_of_step", _evaluation_sampled),
    expected=(),
    refusal="which is not a training task",
)


def inexact_reward(rollout, task):
    """A judge at a temperature."""
    return float(np.random.default_rng().random())


GRADER_INEXACT = Fault(
    name="grader-inexact",
    numbers=(46,),
    what="the same answer gets another reward when graded again",
    plant=nullcontext,
    expected=("RWD002",),
    reward=inexact_reward,
)


def _group_paid(real):
    def collect(*args, grade, **kwargs):
        def paid(group):
            mean = fmean(rollout.reward for rollout in group.rollouts)
            return replace(group, rollouts=tuple(_with(rollout, mean) for rollout in group.rollouts))

        groups = real(*args, grade=grade, **kwargs)
        return groups if grade is None else [paid(group) for group in groups]

    return collect


def _with(rollout, reward):
    return replace(rollout, reward=reward, reward_parts=dict.fromkeys(rollout.reward_parts, reward))


GROUP_PAID = Fault(
    name="group-paid",
    numbers=(45,),
    what="every rollout gets the mean reward of its group, and so do the parts of its reward",
    plant=lambda: patched("truing.rollouts.sampler:collect", _group_paid),
    expected=("RWD014",),
)


def _nothing_rejected(real):
    def keep_good(rollouts, cfg, mask):
        return real["rft"].to_samples(rollouts, cfg.model_copy(update={"min_reward": -1.0}), mask)

    return {**real, "rft": replace(real["rft"], to_samples=keep_good)}


NOTHING_REJECTED = Fault(
    name="nothing-rejected",
    numbers=(66,),
    what="answers below the threshold become demonstrations",
    plant=lambda: patched("truing.learner.learner:ALGORITHMS", _nothing_rejected),
    expected=("RWD008",),
    changes={"stages": ["sft", "rft"], "rft.steps": 2, "rft.learning_rate": 1e-3},
)


def _threshold_rejected(real):
    def keep_better(rollouts, cfg, mask):
        return real["rft"].to_samples(
            rollouts, cfg.model_copy(update={"min_reward": cfg.min_reward + 1e-6}), mask
        )

    return {**real, "rft": replace(real["rft"], to_samples=keep_better)}


THRESHOLD_REJECTED = Fault(
    name="threshold-rejected",
    numbers=(),
    what="rejection sampling leaves out rollouts that earn exactly the threshold",
    plant=lambda: patched("truing.learner.learner:ALGORITHMS", _threshold_rejected),
    expected=("RWD008",),
    changes={"stages": ["sft", "rft"], "rft.steps": 2, "rft.learning_rate": 1e-3},
)


def _ungraded_as_zero(real):
    def grade(rollout, rewards):
        if seed_of(rollout.rollout_id, "planted") % 4:
            return real(rollout, rewards)
        return real(rollout, rewards)._replace(reward=0.0, parts={})

    return grade


UNGRADED_AS_ZERO = Fault(
    name="ungraded-as-zero",
    numbers=(),
    what="rollouts that no function judges have a reward of 0",
    plant=lambda: patched("truing.rollouts.workers.calls:grade", _ungraded_as_zero),
    expected=("RWD009",),
)


def _reward_clipped(real):
    def grade(rollout, rewards):
        graded = real(rollout, rewards)
        return graded._replace(reward=min(graded.reward, 0.5))

    return grade


REWARD_CLIPPED = Fault(
    name="reward-clipped",
    numbers=(69,),
    what="rewards are clipped at 0.5 after grading",
    plant=lambda: patched("truing.rollouts.workers.calls:grade", _reward_clipped),
    expected=("RWD009",),
)


def _reward_squared(real):
    def grade(rollout, rewards):
        graded = real(rollout, rewards)
        return graded._replace(reward=graded.reward**2)

    return grade


REWARD_SQUARED = Fault(
    name="reward-squared",
    numbers=(69,),
    what="rewards are squared after grading",
    plant=lambda: patched("truing.rollouts.workers.calls:grade", _reward_squared),
    expected=("RWD009",),
)


def _rewards_on_other_rows(real):
    def collect(*args, **kwargs):
        def turned(group):
            rollouts = group.rollouts
            before = (rollouts[-1], *rollouts[:-1])
            moved = [replace(one, reward=other.reward) for one, other in zip(rollouts, before, strict=True)]
            return replace(group, rollouts=tuple(moved))

        return [turned(group) for group in real(*args, **kwargs)]

    return collect


REWARDS_ON_OTHER_ROWS = Fault(
    name="rewards-on-other-rows",
    numbers=(45,),
    what="rewards are one row off their rollouts",
    plant=lambda: patched("truing.rollouts.sampler:collect", _rewards_on_other_rows),
    expected=("RWD014",),
)


def _stored_as(change):
    """Store another reward than the grader's: ``change`` gets a rollout, and returns its only part."""

    def make(real):
        def grade(rollout, *args):
            graded = real(rollout, *args)
            if graded.status is Status.ERROR:
                return graded
            reward = change(graded)
            return replace(graded, reward=reward, reward_parts=dict.fromkeys(graded.reward_parts, reward))

        return grade

    return patched("truing.rollouts.collect:_grade", make)


REWARDS_ROUNDED = Fault(
    name="rewards-rounded",
    numbers=(45,),
    what="rewards are stored with one digit",
    plant=lambda: _stored_as(lambda graded: round(graded.reward, 1)),
    expected=("RWD014",),
)


SHORT_ONES_PAID_LESS = Fault(
    name="short-ones-paid-less",
    numbers=(45,),
    what="short answers lose a tenth of their reward after grading",
    plant=lambda: _stored_as(lambda graded: graded.reward * (0.9 if len(graded.text) < 6 else 1.0)),
    expected=(),
    refusal="the evaluation has other rewards than declared",
)


FIRST_OF_GROUP_PAID_MORE = Fault(
    name="first-of-group-paid-more",
    numbers=(45,),
    what="the first two rollouts of each group have a bonus that no grader gives",
    plant=lambda: _stored_as(lambda graded: graded.reward + 0.5 * graded.rollout_id.endswith(("/0", "/1"))),
    expected=("RWD014",),
    changes={"eval.tasks": 0},
)


def _rewards_of_the_step_before(real):
    earlier = {}

    def collect(tasks, *, key, grade, **options):
        groups = real(tasks, key=key, grade=grade, **options)
        if grade is None or "eval" in key:
            return groups
        before, earlier["rollouts"] = (
            earlier.get("rollouts"),
            [each for group in groups for each in group.rollouts],
        )
        if before is None:
            return groups
        of_before = iter(before)
        return [
            replace(group, rollouts=tuple(_with_reward_of(each, next(of_before)) for each in group.rollouts))
            for group in groups
        ]

    return collect


def _with_reward_of(rollout, other):
    return replace(rollout, reward=other.reward, reward_parts=other.reward_parts)


REWARDS_OF_THE_STEP_BEFORE = Fault(
    name="rewards-of-the-step-before",
    numbers=(45,),
    what="rollouts have the rewards of the step before, at the same places",
    plant=lambda: patched("truing.rollouts.sampler:collect", _rewards_of_the_step_before),
    expected=("RWD014",),
)


def _grades_kept_by_text(real):
    first = {}

    def grade(rollout, *args):
        if "/eval/" in rollout.group_id:
            return real(rollout, *args)
        kept = first.get(rollout.text)
        if kept is None:
            kept = first[rollout.text] = real(rollout, *args)
        return _with_reward_of(rollout, kept)

    return grade


GRADES_KEPT_BY_TEXT = Fault(
    name="grades-kept-by-text",
    numbers=(),
    what="an answer is graded once, and has that reward for each task",
    plant=lambda: patched("truing.rollouts.collect:_grade", _grades_kept_by_text),
    expected=("RWD014",),
)


def _graded_for_other_tasks(real):
    def collect(tasks, *, group_size, grade, **options):
        def interleaved(rollout):
            group, index = map(int, rollout.rollout_id.split("/")[-2:])
            return grade(replace(rollout, task=tasks[(group * group_size + index) % len(tasks)]))

        own = grade if grade is None or group_size < 2 else interleaved
        return real(tasks, group_size=group_size, grade=own, **options)

    return collect


GRADED_FOR_OTHER_TASKS = Fault(
    name="graded-for-other-tasks",
    numbers=(45,),
    what="answers are graded with the tasks repeated in another order",
    plant=lambda: patched("truing.rollouts.sampler:collect", _graded_for_other_tasks),
    expected=("RWD014",),
)
