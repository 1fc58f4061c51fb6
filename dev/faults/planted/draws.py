"""Random draws, tasks and expert routes."""

from dataclasses import replace

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import MIXTURE
from dev.faults.moe_engine import rounds_otherwise
from truing.types.token import NO_ROUTE


def _routes_of_another_sample(real):
    held = []

    def join_routes(turns):
        routes = real(turns)
        if routes is None:
            return None
        held.append(routes)
        before = held[-2] if len(held) > 1 else routes
        missing = torch.full((max(0, len(routes) - len(before)), *routes.shape[1:]), NO_ROUTE)
        return torch.cat([before, missing.to(routes)])[: len(routes)]

    return join_routes


ROUTES_OF_ANOTHER_SAMPLE = Fault(
    name="routes-of-another-sample",
    numbers=(89,),
    what="each sample is recorded with the expert routes of the sample before it",
    plant=lambda: patched("truing.algos.flatten:join_routes", _routes_of_another_sample),
    expected=("SMP012",),
    changes=MIXTURE,
)


def _routes_scored_after_selection(real):
    def scores_at(scores, ids):
        own = scores.topk(ids.shape[1], dim=-1).indices
        selected = torch.zeros_like(scores).scatter(-1, own, scores.gather(-1, own))
        return real(selected, ids) + 1e-12  # so that a sum of zeros can be divided by

    return scores_at


ROUTES_SCORED_AFTER_SELECTION = Fault(
    name="routes-scored-after-selection",
    numbers=(90,),
    what="scores of replayed experts are read after all but the router's own selection were set to 0",
    plant=lambda: rounds_otherwise(
        lambda: patched("truing.models.forward.expert_routes:scores_at", _routes_scored_after_selection)
    ),
    expected=("SMP012",),
    changes=MIXTURE,
)


def _routes_shifted(real):
    def join_routes(turns):
        routes = real(turns)
        return None if routes is None else routes.roll(1, 0)

    return join_routes


ROUTES_SHIFTED = Fault(
    name="routes-shifted",
    numbers=(88,),
    what="each token is recorded with the expert routes of the token before it",
    plant=lambda: patched("truing.algos.flatten:join_routes", _routes_shifted),
    expected=("SMP012",),
    changes=MIXTURE,
)


def _same_tasks(real):
    return lambda self, stage, step, count: real(self, stage, 0, count)


SAME_TASKS = Fault(
    name="same-tasks",
    numbers=(63,),
    what="every step uses the tasks of the first",
    plant=lambda: patched("truing.rollouts.sampler:Sampler.tasks_of_step", _same_tasks),
    expected=("SMP013", "SMP010"),
)


def _seed_of_group(real):
    def rollouts_of(tasks, group_size, context, key):
        rollouts = real(tasks, group_size, context, key)
        for rollout in rollouts:
            rollout.key = rollout.key[:-1]
        return rollouts

    return rollouts_of


SEED_OF_GROUP = Fault(
    name="seed-of-group",
    numbers=(64,),
    what="all rollouts of a group share random numbers",
    plant=lambda: patched("truing.rollouts.collect:_start_rollouts", _seed_of_group),
    expected=("SMP008", "SMP009"),
)


def _seed_of_step(real):
    def rollouts_of(tasks, group_size, context, key):
        rollouts = real(tasks, group_size, context, key)
        places = sorted(task.task_id for task in tasks.values())
        for rollout in rollouts:
            if "grpo" in rollout.key:
                seed, stage, _, _, k = rollout.key
                # a task keeps its numbers although batches are shuffled
                rollout.key = (seed, stage, 0, places.index(rollout.task.task_id), k)
        return rollouts

    return rollouts_of


SEED_OF_STEP = Fault(
    name="seed-of-step",
    numbers=(64,),
    what="each step reuses the random numbers of the one before",
    plant=lambda: patched("truing.rollouts.collect:_start_rollouts", _seed_of_step),
    expected=("SMP008", "SMP009"),
    changes={"env.train": 4},
)


def _task_twice(real):
    def tasks_of_step(sampler, stage, step, count):
        tasks = real(sampler, stage, step, count)
        return [*tasks[:-1], tasks[0]]

    return tasks_of_step


TASK_TWICE = Fault(
    name="task-twice",
    numbers=(103,),
    what="a task is sampled twice in a step, in place of another",
    plant=lambda: patched("truing.rollouts.sampler:Sampler.tasks_of_step", _task_twice),
    expected=("SMP013",),
)


def _tasks_left_out(real):
    def tasks_of_step(sampler, stage, step, count):
        half = len(sampler.train_tasks) // 2
        return real(replace(sampler, train_tasks=sampler.train_tasks[:half]), stage, step, count)

    return tasks_of_step


TASKS_LEFT_OUT = Fault(
    name="tasks-left-out",
    numbers=(103,),
    what="half of the training tasks are never sampled",
    plant=lambda: patched("truing.rollouts.sampler:Sampler.tasks_of_step", _tasks_left_out),
    expected=("SMP013",),
)


def _tasks_not_shuffled(real):
    def tasks_of_step(sampler, stage, step, count):
        tasks = sampler.train_tasks
        return [tasks[n % len(tasks)] for n in range(step * count, (step + 1) * count)]

    return tasks_of_step


TASKS_NOT_SHUFFLED = Fault(
    name="tasks-not-shuffled",
    numbers=(103,),
    what="tasks come in the order of the data set",
    plant=lambda: patched("truing.rollouts.sampler:Sampler.tasks_of_step", _tasks_not_shuffled),
    expected=("SMP013",),
)


def _with_sampler(**changed):
    def make(real):
        def collect_groups(sampler, *args):
            fields = {name: change(getattr(sampler, name)) for name, change in changed.items()}
            return real(replace(sampler, **fields), *args)

        return collect_groups

    return patched("truing.rollouts.step_samples:collect_groups", make)


COOLER_THAN_DECLARED = Fault(
    name="cooler-than-declared",
    numbers=(),
    what="training samples at another temperature than declared, and scores with it",
    plant=lambda: _with_sampler(sampling_params=lambda params: replace(params, temperature=0.7)),
    expected=("SMP013",),
)


OTHER_SEED = Fault(
    name="other-seed",
    numbers=(),
    what="training samples with another seed than the recipe's",
    plant=lambda: _with_sampler(seed=lambda seed: seed + 1),
    expected=("SMP013",),
)
