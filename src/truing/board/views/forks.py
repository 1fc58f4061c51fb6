"""Of which run a run is a fork, and the experiment on it: its arms, their effects, and its forks."""

from collections.abc import Sequence
from typing import Any

from truing.board.data.experiments import Experiments, parent_of
from truing.board.data.run_view import RunView
from truing.lab.forks.plan import MOST_PAIRS, Plan
from truing.lab.forks.result import ArmResult, summary


def forks(run_view: RunView, experiments: Experiments) -> dict[str, Any]:
    """Return the parent of a run, and the experiment on it; each None without one."""
    plan = experiments.plan_of(run_view.name)
    return {
        "parent": parent_of(run_view, experiments.folders),
        "experiment": plan and _experiment(run_view.name, plan, experiments),
    }


def _experiment(run: str, plan: Plan, experiments: Experiments) -> dict[str, Any]:
    """Return the answer of an experiment in one line, its arms and its pairs."""
    results = plan.results(lambda fork: experiments.reward(run, plan, fork))
    return {
        "stage": plan.stage,
        "at": plan.at,
        "steps": plan.steps,
        "answer": _answer(plan, results),
        "arms": [_arm(each) for each in results],
        "pairs": _pairs(run, plan, experiments),
        "left_out": plan.left_out,
    }


def _answer(plan: Plan, results: Sequence[ArmResult]) -> str:
    """Return what the experiment shows."""
    return next(summary(results, plan.steps, None)) if results else "no arm: all were left out"


def _arm(result: ArmResult) -> dict[str, Any]:
    low, high = result.interval
    return {
        "name": result.arm.name,
        "changes": result.arm.changes,
        "because": result.arm.because,
        "pairs": len(result.differences),
        "effect": result.effect,
        "low": low,
        "high": high,
        "e_value": result.e_value,
        "needed": 1 / result.error,
        "verdict": result.verdict,
    }


def _pairs(run: str, plan: Plan, experiments: Experiments) -> list[list[dict[str, Any]]]:
    """Return the forks of each pair, the unchanged one first, each with its reward."""
    pairs = [
        [(experiments.fork(run, name), name) for name in (plan.fork_name(arm, pair) for arm in plan.names)]
        for pair in range(MOST_PAIRS)
    ]
    return [
        [{"run": fork, "reward": experiments.reward(run, plan, name)} for fork, name in pair]
        for pair in pairs
        if any(fork for fork, _ in pair)
    ]
