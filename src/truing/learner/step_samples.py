"""Where the samples of a step come from: demonstrations, or the policy's own rollouts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from truing.algos import Algorithm, UpdateConfig
from truing.config import PolicyStage
from truing.errors import DataError, RolloutError
from truing.learner.group_selection import draw_groups
from truing.learner.session import Session
from truing.rollouts.flatten import flatten, without_loss_terms, without_policy_term
from truing.types.rollout import Rollout, RolloutGroup, Task
from truing.types.sample import Sample
from truing.types.status import EndedBy, Status
from truing.types.token import Excluded


@dataclass(frozen=True, eq=False)
class StepSamples:
    """The samples of a step, with the tasks and rollouts they come from.

    ``failed`` are samples of rollouts that have no reward, or no other to be compared with, or whose group
    was left out: on record only. ``equal_groups`` counts groups that were left out. ``limited`` says
    whether prompts are held to a length, so that some may have been cut.
    """

    samples: list[Sample]
    untrained: list[Sample]
    tasks: Mapping[str, Task]
    rollouts: Mapping[str, Rollout]
    equal_groups: int = 0
    prompts_limited: bool = False


def draw_step_samples(
    session: Session, algorithm: Algorithm, setting: UpdateConfig, stage: str, step: int
) -> StepSamples:
    """The samples of update ``step`` of a stage, with demonstrations beside them while it is bootstrapped."""
    cfg, limits = setting.stage, session.recipe.episode
    equal: list[RolloutGroup] = []
    if algorithm.source == "demonstrations":
        groups = session.play_demonstrations(
            session.tasks_of_step(stage, step, cfg.batch_size), (stage, step)
        )
        usable = [rollout for group in groups for rollout in group.rollouts]
        _check_demonstrations(usable)
    else:
        groups, equal = draw_groups(session, setting, stage, step)
        usable = _with_reward(groups, least=min(2, cfg.group_size))
    everything = [*groups, *equal]
    rollouts = {rollout.rollout_id: rollout for group in everything for rollout in group.rollouts}
    left_out = rollouts.keys() - {rollout.rollout_id for rollout in usable}
    samples = _without_truncated(algorithm.to_samples(usable, cfg, limits.mask), rollouts, setting)
    failed = [
        without_loss_terms(sample) for name in left_out for sample in flatten(rollouts[name], limits.mask)
    ]
    tasks = {group.task.task_id: group.task for group in everything}
    limited = session.recipe.episode.max_prompt_tokens is not None
    drawn = StepSamples(samples, failed, tasks, rollouts, len(equal), limited)
    if isinstance(cfg, PolicyStage) and setting.bootstrap.steps:
        drawn = _with_demonstrations(drawn, session, setting.bootstrap.batch_size, stage, step)
    _check_lengths(drawn, session.loaded.context_length)
    return drawn


def _without_truncated(
    samples: list[Sample], rollouts: Mapping[str, Rollout], setting: UpdateConfig
) -> list[Sample]:
    """Samples, of which the policy term reads no attempt that was cut where the recipe says so."""
    if setting.gates.truncated != "mask" or not isinstance(setting.stage, PolicyStage):
        return samples
    return [
        without_policy_term(sample, Excluded.CUT)
        if rollouts[sample.rollout_id].status is Status.TRUNCATED
        else sample
        for sample in samples
    ]


def _with_demonstrations(
    drawn: StepSamples, session: Session, count: int, stage: str, step: int
) -> StepSamples:
    """What was drawn, and as many demonstrations: supervised terms read them, and no others."""
    tasks = session.tasks_of_step(f"{stage}/bootstrap", step, count)
    groups = session.play_demonstrations(tasks, (stage, "bootstrap", step))
    shown = {rollout.rollout_id: rollout for group in groups for rollout in group.rollouts}
    _check_demonstrations(list(shown.values()))
    samples = [sample for rollout in shown.values() for sample in flatten(rollout)]
    return replace(
        drawn,
        samples=drawn.samples + samples,
        tasks={**drawn.tasks, **{task.task_id: task for task in tasks}},
        rollouts={**drawn.rollouts, **shown},
    )


def _with_reward(groups: list[RolloutGroup], least: int) -> list[Rollout]:
    """The rollouts that have a reward, in groups where at least so many have one."""
    judged = [[r for r in group.rollouts if r.status is not Status.ERROR] for group in groups]
    usable = [rollout for rollouts in judged if len(rollouts) >= least for rollout in rollouts]
    if not usable:
        errors = [rollout.error for group in groups for rollout in group.rollouts if rollout.error]
        raise RolloutError(
            "no attempt of this step can be trained on",
            got=f"{len(errors)} failed; the first one:\n{errors[0]}",
            remedy="mend the tool or the environment; truing check RECIPE tries them without training",
        )
    return usable


DEMONSTRATION_REMEDIES = {
    EndedBy.ERROR: "mend the tool, or the demonstration; raise episode.timeout where it only takes long",
    EndedBy.CONTEXT: "lower episode.max_reply_chars, shorten the task, or take a model with a longer context",
    EndedBy.TURNS: "raise episode.max_turns, or let the last demonstrated turn call no tool",
    EndedBy.TIME: "raise episode.time_limit",
}
"""What helps where a demonstration was cut short."""


def _check_demonstrations(rollouts: list[Rollout]) -> None:
    """Raise where a demonstration failed in its own world."""
    for rollout in rollouts:
        if rollout.status is not Status.DONE or rollout.ended_by is not EndedBy.ENVIRONMENT:
            raise DataError(
                f"the demonstration of task {rollout.task.task_id} does not come to its end",
                got=f"ended by {rollout.ended_by.value} after {len(rollout.turns)} turns {rollout.error}",
                expected="ended by the world, as it was demonstrated",
                remedy=DEMONSTRATION_REMEDIES[rollout.ended_by],
            )


def _check_lengths(drawn: StepSamples, context_length: int) -> None:
    """Raise where a demonstration is longer than the model's context; what was sampled never is."""
    for sample in drawn.samples:
        if len(sample) > context_length:
            raise DataError(
                f"the demonstration of task {sample.task_id} is longer than the context",
                got=f"{len(sample)} tokens with its prompt",
                expected=f"≤ {context_length}",
                remedy="set episode.max_prompt_tokens, or shorten the task; nothing is cut in silence",
            )
