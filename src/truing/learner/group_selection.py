"""Which groups of rollouts a step trains on, where some may teach nothing."""

from collections.abc import Sequence
from typing import NamedTuple

from truing.algos import UpdateConfig
from truing.config import PolicyStage
from truing.learner.session import Session
from truing.rollouts.turn_sources import force_rate
from truing.types.rollout import RolloutGroup, Task
from truing.types.status import Status
from truing.utils.rng import permutation


class SelectedGroups(NamedTuple):
    """The groups to train on, and those that were drawn and left out because all earned the same."""

    groups: list[RolloutGroup]
    left_out: list[RolloutGroup]


def draw_groups(session: Session, setting: UpdateConfig, stage: str, step: int) -> SelectedGroups:
    """The groups of update ``step``, by ``gates.equal_groups``."""
    cfg = setting.stage
    how = setting.gates.equal_groups if isinstance(cfg, PolicyStage) else "count"
    tasks = session.tasks_of_step(stage, step, cfg.prompts_per_step)
    groups = _draw(session, tasks, setting, stage, step)
    left_out: list[RolloutGroup] = []
    if how == "resample":
        for again in range(1, setting.gates.max_resample + 1):
            places = [i for i, group in enumerate(groups) if has_equal_rewards(group)]
            known = {group.task.task_id for group in groups + left_out}
            fresh = _untried_tasks(session, known, len(places), (stage, step, "resample", again))
            if not fresh:
                break
            drawn = _draw(session, fresh, setting, stage, step, "resample", again)
            for place, group in zip(places, drawn, strict=False):
                left_out.append(groups[place])
                groups[place] = group
    if how == "drop" and not all(has_equal_rewards(group) for group in groups):
        left_out = [group for group in groups if has_equal_rewards(group)]
        groups = [group for group in groups if not has_equal_rewards(group)]
    return SelectedGroups(groups, left_out)


def has_equal_rewards(group: RolloutGroup) -> bool:
    """Whether all attempts that have a reward have the same, by the grader: nothing is to be compared."""
    rewards = [rollout.reward for rollout in group.rollouts if rollout.status is not Status.ERROR]
    return len(rewards) > 1 and min(rewards) == max(rewards)


def _draw(
    session: Session, tasks: Sequence[Task], setting: UpdateConfig, stage: str, step: int, *occasion: object
) -> list[RolloutGroup]:
    """A group of attempts for each task."""
    rate = force_rate(session.recipe.episode, step)
    size = setting.stage.group_size
    return session.collect_rollouts(tasks, size, session.sampling_params, (stage, step, *occasion), rate)


def _untried_tasks(session: Session, known: set[str], count: int, key: tuple[object, ...]) -> list[Task]:
    """Training tasks that the step has not tried, at most so many."""
    order = permutation(len(session.train_tasks), session.recipe.seed, *key)
    tasks = (session.train_tasks[i] for i in order)
    return [task for task in tasks if task.task_id not in known][:count]
