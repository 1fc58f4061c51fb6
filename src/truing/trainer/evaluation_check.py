"""Check that an evaluation is the declared one: tasks, sampling, weights, draws, rewards and means."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from math import comb, fsum, isclose, isnan, nan
from typing import Any

import torch

from truing.algos.flatten import flatten, turns_by_sample
from truing.analysis.evaluation import Evaluation
from truing.analysis.intervals import REWARD_TOLERANCE, interval
from truing.config import Recipe
from truing.errors import ModelError
from truing.measurements.evaluated_draws import evaluated_draws
from truing.measurements.prompts import prompt_fact, raise_if_different
from truing.measurements.task_order import declared_params
from truing.models.digest import quick_sum
from truing.models.policy import Policy
from truing.rollouts.sampler import Sampler
from truing.types.rollout import RolloutGroup, Task
from truing.types.status import Status


def prove_evaluated(
    recipe: Recipe,
    policy: Policy,
    sampler: Sampler,
    groups: Sequence[RolloutGroup],
    reward: Mapping[str, float],
) -> None:
    """Raise if an evaluation is not the one that the recipe declares.

    Args:
        recipe: of the run.
        policy: whose weights are to be evaluated.
        sampler: with the tasks.
        groups: the evaluated rollouts.
        reward: the evaluation's result by task id.
    """
    samples = [sample for group in groups for sample in flatten(group.rollouts[0])]
    raise_if_different("the evaluation", prompt_fact(sampler.chat, sampler.eval_tasks, samples))
    _prove_samples(groups)
    _prove_groups(recipe, sampler.eval_tasks, groups)
    stop_ids, temperature = sampler.sampling_params.stop_ids, recipe.eval.temperature
    declared = declared_params(recipe, stop_ids, temperature=temperature)
    for group in groups:
        for rollout in group.rollouts:
            if rollout.sampling_params != declared:
                raise _other("sampling parameters", repr(rollout.sampling_params), repr(declared))
    _prove_weights(groups, quick_sum(policy.parameters))
    _prove_draws(recipe, policy, sampler, groups)
    _prove_rewards(policy, sampler, groups)
    _prove_means(groups, reward)


def _prove_samples(groups: Sequence[RolloutGroup]) -> None:
    """Raise if a sample has other ids than the turns that it is made of: draws are replayed by samples."""
    for rollout in (each for group in groups for each in group.rollouts):
        turns = turns_by_sample(rollout)
        for sample in flatten(rollout):
            for turn, span in zip(turns[sample.sample_id], sample.turns, strict=True):
                got = sample.token_ids[span.start : span.end]
                if not torch.equal(got, turn.token_ids):
                    raise ModelError(
                        f"the sample {sample.sample_id} of the evaluation has other ids than were sampled",
                        got=got.tolist()[:20],
                        expected=turn.token_ids.tolist()[:20],
                        remedy="look for what makes samples of rollouts: sampled ids are not encoded again",
                    )


def _prove_groups(recipe: Recipe, tasks: Sequence[Task], groups: Sequence[RolloutGroup]) -> None:
    """Raise unless each task has its declared number of rollouts, with the random numbers of its index."""
    got = [(group.group_id, group.task.task_id, len(group.rollouts)) for group in groups]
    expected = [
        (f"{recipe.seed}/eval/{index}", task.task_id, recipe.eval.samples) for index, task in enumerate(tasks)
    ]
    for one, other in zip_longest(got, expected):
        if one != other:
            raise _other("tasks, rollouts or random numbers", f"{len(got)} tasks, among them {one}", other)


def _prove_weights(groups: Sequence[RolloutGroup], digest: str) -> None:
    """Raise if a turn was sampled with other weights than the policy's."""
    digests = Counter(
        turn.weight_digest
        for group in groups
        for rollout in group.rollouts
        for turn in rollout.turns
        if len(turn.token_ids)  # a rollout that failed before its first turn was not sampled
    )
    others = [other for other in digests if other != digest]
    if others:
        count = sum(digests[other] for other in others)
        raise _other("weights", f"{count} turns with digest {others[0]}", f"the policy's digest {digest}")


def _prove_draws(recipe: Recipe, policy: Policy, sampler: Sampler, groups: Sequence[RolloutGroup]) -> None:
    """Raise if sampled tokens do not follow from their random numbers: hidden sampling parameters show so."""
    draws = evaluated_draws(policy, sampler, groups, (recipe.seed, "eval", quick_sum(policy.parameters)))
    if draws.missed:
        got = f"{draws.missed} of {draws.tokens} replayed tokens do not follow from their random numbers"
        raise _other("draws", got, "those of the declared distribution at the random numbers of their keys")


def _prove_rewards(policy: Policy, sampler: Sampler, groups: Sequence[RolloutGroup]) -> None:
    """Raise if a rollout has another reward than its grader returned."""
    rollouts = {each.rollout_id: each for group in groups for each in group.rollouts}
    parts = policy.ranks.gather("the results of graders", sampler.grades.take(rollouts))
    gradings = {name: grading for part in parts for name, grading in part.items()}
    returned = {name: each.result.reward for name, each in gradings.items()}
    stored = {name: each.reward for name, each in rollouts.items() if not isnan(each.reward)}
    other = [name for name, reward in stored.items() if reward != returned.get(name)]
    if other:
        got = f"{stored[other[0]]:g} for {other[0]}, one of {len(other)} rollouts with another one"
        raise _other("rewards", got, f"{returned.get(other[0], nan):g}, as its grader returned")
    for name, each in gradings.items():
        own = rollouts[name].task.task_id, rollouts[name].text
        if each[:2] != own:
            raise _other("graded answers", f"{each[:2]} for {name}", own)


def _prove_means(groups: Sequence[RolloutGroup], reward: Mapping[str, float]) -> None:
    """Raise if a task's reward is not the mean of its graded rollouts."""
    for group in groups:
        earned = [each.reward for each in group.rollouts if each.status is not Status.ERROR]
        got = reward.get(group.task.task_id)
        expected = fsum(earned) / len(earned) if earned else None
        if got is None or expected is None:
            differ = got is not expected
        else:
            differ = not isclose(got, expected, rel_tol=1e-9, abs_tol=1e-12)
        if differ:
            raise _other("means", f"{got} for task {group.task.task_id}", f"{expected}, the mean of {earned}")


def prove_summary(evaluation: Evaluation, groups: Sequence[RolloutGroup], samples: int) -> None:
    """Raise if answers or the estimate are not of the tasks' rollouts, or pass@k not of those that pass.

    pass@k is 1 − C(n − c, k) ÷ C(n, k) over tasks with c of n answers that pass.
    """
    answers = {group.task.task_id: [each.text for each in group.rollouts] for group in groups}
    for task, texts in answers.items():
        if evaluation.answers.get(task) != texts:
            raise _other("answers", f"{evaluation.answers.get(task)} for task {task}", texts)
    of_tasks = interval(list(evaluation.reward.values()), evaluation.bounds, samples)
    if repr(got := evaluation.estimate()) != repr(of_tasks):  # bounds may be NaN
        raise _other("estimate", str(got), f"{of_tasks}, by the rewards of its tasks")
    if evaluation.passes_at is None:
        return
    counts = [
        (len(earned), sum(reward >= evaluation.passes_at - REWARD_TOLERANCE for reward in earned))
        for earned in evaluation.earned.values()
    ]
    for k, estimate in evaluation.pass_at().items():
        expected = fsum(1 - comb(n - c, k) / comb(n, k) for n, c in counts) / len(counts)
        if not isclose(estimate.mean, expected, rel_tol=1e-9, abs_tol=1e-12):
            raise _other("pass rates", f"pass@{k} = {estimate.mean:g}", f"{expected:g}, by the rewards")


def _other(part: str, got: Any, expected: Any) -> ModelError:
    return ModelError(
        f"the evaluation has other {part} than declared",
        got=got,
        expected=expected,
        remedy="look for code that changes evaluations alone; the numbers of this evaluation are not used",
    )
