"""The samples of a step: demonstrations, or the policy's own rollouts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from truing.algos import Algorithm, StepConfig
from truing.algos.flatten import flatten, is_other_conversation, without_loss_terms, without_policy_term
from truing.config import PolicyStage
from truing.errors import DataError, RolloutError
from truing.ops.masks import MaskPolicy
from truing.rollouts.group_selection import collect_groups
from truing.rollouts.running_rollout import remedy_of
from truing.rollouts.sampler import Sampler
from truing.types.rollout import Rollout, RolloutGroup, Task
from truing.types.sample import Sample
from truing.types.status import EndedBy, Status
from truing.types.token import Excluded


@dataclass(frozen=True, eq=False)
class StepSamples:
    """The samples of a step, with the tasks and rollouts they come from.

    ``untrained`` are recorded only: samples of rollouts without a reward, alone in their group, or of a
    dropped group. ``equal_groups`` counts groups dropped for equal rewards. ``prompts_limited`` tells whether
    prompts have a maximum length, so that some may be truncated.
    """

    samples: list[Sample]
    untrained: list[Sample]
    tasks: Mapping[str, Task]
    rollouts: Mapping[str, Rollout]
    equal_groups: int = 0
    prompts_limited: bool = False

    def recorded(self, minibatches: Iterable[Sequence[Sample]]) -> list[Sample]:
        """Return all samples as recorded: untrained ones, then those of the minibatches, with advantages.

        Last come those of conversations that are not to be trained.
        """
        by_id = {sample.sample_id: sample for sample in self.untrained}
        by_id |= {sample.sample_id: sample for minibatch in minibatches for sample in minibatch}
        return sorted(by_id.values(), key=is_other_conversation)


def collect_step_samples(
    sampler: Sampler, algorithm: Algorithm, setting: StepConfig, stage: str, step: int, mask: MaskPolicy
) -> StepSamples:
    """Return the samples of step ``step`` of a stage; during bootstrap with demonstrations added."""
    cfg = setting.stage
    equal: list[RolloutGroup] = []
    if algorithm.source == "demonstrations":
        tasks = sampler.tasks_of_step(stage, step, cfg.batch_size)
        groups = sampler.play_demonstrations(tasks, (stage, step))
        usable = _complete_demonstrations(groups)
    else:
        groups, equal = collect_groups(sampler, setting, stage, step)
        usable = _with_reward(groups, minimum=min(2, cfg.group_size))
    rollouts = {each.rollout_id: each for group in (*groups, *equal) for each in group.rollouts}
    made = _without_truncated(algorithm.to_samples(usable, cfg, mask), rollouts, setting)
    others = [sample for sample in made if is_other_conversation(sample)]
    step_samples = StepSamples(
        samples=[sample for sample in made if not is_other_conversation(sample)],
        untrained=_without_loss(rollouts, usable, mask) + others,
        tasks={group.task.task_id: group.task for group in (*groups, *equal)},
        rollouts=rollouts,
        equal_groups=len(equal),
        prompts_limited=sampler.episode.max_prompt_tokens is not None,
    )
    if isinstance(cfg, PolicyStage) and setting.bootstrap.steps:
        step_samples = _with_demonstrations(step_samples, sampler, setting.bootstrap.batch_size, stage, step)
    _check_lengths(step_samples, sampler.context_length)
    return step_samples


def _without_loss(
    rollouts: Mapping[str, Rollout], usable: Sequence[Rollout], mask: MaskPolicy
) -> list[Sample]:
    """Return the samples of the rollouts that cannot train, in the order of the rollouts."""
    usable_ids = {rollout.rollout_id for rollout in usable}
    unusable = (rollout for name, rollout in rollouts.items() if name not in usable_ids)
    return [without_loss_terms(sample) for rollout in unusable for sample in flatten(rollout, mask)]


def _without_truncated(
    samples: list[Sample], rollouts: Mapping[str, Rollout], setting: StepConfig
) -> list[Sample]:
    """Return samples with truncated rollouts excluded from the policy loss, if gates.truncated = "mask"."""
    if setting.gates.truncated != "mask" or not isinstance(setting.stage, PolicyStage):
        return samples
    return [
        without_policy_term(sample, Excluded.CUT)
        if rollouts[sample.rollout_id].status is Status.TRUNCATED
        else sample
        for sample in samples
    ]


def _with_demonstrations(
    step_samples: StepSamples, sampler: Sampler, count: int, stage: str, step: int
) -> StepSamples:
    """Add ``count`` demonstrations, which only supervised loss terms read."""
    tasks = sampler.tasks_of_step(f"{stage}/bootstrap", step, count)
    groups = sampler.play_demonstrations(tasks, (stage, "bootstrap", step))
    demonstrations = {rollout.rollout_id: rollout for rollout in _complete_demonstrations(groups)}
    samples = [sample for rollout in demonstrations.values() for sample in flatten(rollout)]
    return replace(
        step_samples,
        samples=step_samples.samples + samples,
        tasks={**step_samples.tasks, **{task.task_id: task for task in tasks}},
        rollouts={**step_samples.rollouts, **demonstrations},
    )


def _with_reward(groups: list[RolloutGroup], minimum: int) -> list[Rollout]:
    """Return the rollouts with a reward, from groups with at least ``minimum`` of them."""
    graded = [[r for r in group.rollouts if r.status is not Status.ERROR] for group in groups]
    usable = [rollout for rollouts in graded if len(rollouts) >= minimum for rollout in rollouts]
    if not usable:
        failed = [rollout for group in groups for rollout in group.rollouts if rollout.error]
        raise RolloutError(
            "no rollout of this step has a usable reward",
            got=f"{len(failed)} failed; the first one:\n{failed[0].error}",
            remedy=remedy_of(failed[0]),
        )
    return usable


DEMONSTRATION_REMEDIES = {
    EndedBy.ERROR: "fix the demonstration or the tool, which raises truing.ToolError where a call is a"
    " mistake of the model; raise episode.timeout if it only takes long",
    EndedBy.CONTEXT: "lower episode.max_reply_chars, shorten the task, or use a model with a longer context",
    EndedBy.TURNS: "raise episode.max_turns, or let the last demonstrated turn call no tool",
    EndedBy.TIME: "raise episode.time_limit",
}
"""Remedy by the reason that ended a demonstration early."""


def _complete_demonstrations(groups: Iterable[RolloutGroup]) -> list[Rollout]:
    """Return the demonstrations; raise if one does not complete in its environment."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    for rollout in rollouts:
        if rollout.status is not Status.DONE or rollout.ended_by is not EndedBy.ENVIRONMENT:
            raise DataError(
                f"the demonstration of task {rollout.task.task_id} does not complete its episode",
                got=f"ended by {rollout.ended_by.value} after {len(rollout.turns)} turns {rollout.error}",
                expected="ended by the environment after the last demonstrated turn",
                remedy=DEMONSTRATION_REMEDIES[rollout.ended_by],
            )
    return rollouts


def _check_lengths(step_samples: StepSamples, context_length: int) -> None:
    """Raise if a demonstration is longer than the model's context; sampled rollouts never are."""
    for sample in step_samples.samples:
        if len(sample) > context_length:
            raise DataError(
                f"the demonstration of task {sample.task_id} is longer than the context",
                got=f"{len(sample)} tokens with its prompt",
                expected=f"≤ {context_length}",
                remedy="set episode.max_prompt_tokens, or shorten the task",
            )
