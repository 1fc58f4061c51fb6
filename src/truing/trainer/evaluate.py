"""Evaluations: the same tasks and random numbers each time, proven to be those that the recipe declares."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np

from truing.analysis.estimate import pass_at_json
from truing.analysis.evaluation import Evaluation
from truing.analysis.intervals import REWARD_TOLERANCE, Bounds
from truing.errors import RolloutError
from truing.rewards import Rewards, reward_range
from truing.rollouts.episode_context import EndedFn
from truing.rollouts.running_rollout import remedy_of
from truing.trainer.collector import logged_publication
from truing.trainer.evaluation_check import prove_evaluated, prove_summary
from truing.trainer.run_context import RunContext
from truing.trainer.second_grader import second_grades
from truing.trainer.session import Session
from truing.types.rollout import RolloutGroup
from truing.types.status import Status


def logged_evaluation(run: RunContext, name: str, stage: str, step: int) -> Evaluation:
    """Evaluate the policy after ``step`` steps of a stage; log and return the evaluation."""
    session, event_log = run.session, run.event_log
    with logged_publication(event_log, stage, step):
        session.publish(run.weights_version(stage, step))
    event_log.notify("evaluating", {"name": name, "tasks": run.recipe.eval.tasks})
    evaluation = evaluate(
        session,
        name,
        lambda ended, answers: event_log.notify("evaluated", {"ended": ended, "answers": answers}),
    )
    evaluation = replace(evaluation, stage=stage, step=step)
    session.sampler.engine.release_memory()
    estimate, pass_at = asdict(evaluation.estimate()), pass_at_json(evaluation.pass_at())
    second = evaluation.by_second_grader()
    by_second = {"second_estimate": asdict(second.estimate())} if second else {}
    event_log.log("eval", **asdict(evaluation), estimate=estimate, pass_at=pass_at, **by_second)
    return evaluation


def evaluate(session: Session, name: str, on_ended: EndedFn) -> Evaluation:
    """Evaluate with the published weights, and prove it.

    Args:
        session: with the policy and the tasks.
        name: of the evaluation.
        on_ended: called while answers are sampled.
    """
    recipe, sampler, cfg = session.recipe, session.sampler, session.recipe.eval
    params = recipe.sampling.to_params(sampler.sampling_params.stop_ids, temperature=cfg.temperature)
    groups = sampler.collect_rollouts(sampler.eval_tasks, cfg.samples, params, ("eval",), on_ended=on_ended)
    evaluation = evaluation_of(name, sampler.env.rewards, groups, cfg.passes_at)
    prove_evaluated(recipe, session.policy, sampler, groups, evaluation.reward)
    prove_summary(evaluation, groups, cfg.samples)
    return replace(evaluation, second=second_grades(session, groups))


def evaluation_of(
    name: str,
    rewards: Rewards,
    groups: Sequence[RolloutGroup],
    passes_at: float | None = None,
) -> Evaluation:
    """Return the evaluation of graded groups: rewards averaged by task.

    Args:
        name: of the evaluation.
        rewards: the environment's reward functions.
        groups: one per task, graded by these rewards.
        passes_at: the lowest reward of an answer that passes; None for the maximum reward.
    """
    graded = {g.task.task_id: [r for r in g.rollouts if r.status is not Status.ERROR] for g in groups}
    by_task = {task: rollouts for task, rollouts in graded.items() if rollouts}
    failed = {g.task.task_id: g.rollouts[0] for g in groups if not graded[g.task.task_id]}
    if len(by_task) < 2:
        first = next(iter(failed.values()))
        raise RolloutError(
            f"the evaluation {name} has rewards for fewer than two tasks: the other rollouts failed",
            got=first.error,
            remedy=remedy_of(first),
        )
    all_rollouts = [rollout for rollouts in by_task.values() for rollout in rollouts]
    parts: defaultdict[str, list[float]] = defaultdict(list)
    for rollout in all_rollouts:
        for part, value in rollout.reward_parts.items():
            parts[part].append(value)
    bounds = _bounds(rewards, [rollout.reward for rollout in all_rollouts])
    return Evaluation(
        name,
        reward={task: float(np.mean([r.reward for r in rollouts])) for task, rollouts in by_task.items()},
        parts={part: float(np.mean(values)) for part, values in parts.items()},
        answers={g.task.task_id: [r.text for r in g.rollouts] for g in groups},
        failed={task: rollout.error for task, rollout in failed.items()},
        bounds=bounds,
        earned={task: [r.reward for r in rollouts] for task, rollouts in by_task.items()},
        passes_at=bounds[1] if passes_at is None and bounds else passes_at,
    )


def _bounds(rewards: Rewards, observed: Sequence[float]) -> Bounds | None:
    """Return the minimum and maximum reward; None if some reward is outside, as a part may have any size."""
    low, high = reward_range(rewards)
    inside = low - REWARD_TOLERANCE <= min(observed) and max(observed) <= high + REWARD_TOLERANCE
    return (low, high) if inside else None
