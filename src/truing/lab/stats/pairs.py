"""Runs of two arms, seed by seed: what a comparison is made of."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from truing.lab.store.ledger import History, Run


@dataclass(frozen=True)
class Pair:
    """The baseline's run and the arm's, of one seed, one version of the code, one kind of machine."""

    seed: int
    base: Run
    arm: Run

    def difference(self, metric: str) -> float:
        """Arm − baseline."""
        return self.arm.metrics[metric] - self.base.metrics[metric]

    def why_not_comparable(self, metrics: Iterable[str], *, same_prompts: bool = False) -> str:
        """Why its runs cannot be compared; "" where they can."""
        if same_prompts and self.base.prompts != self.arm.prompts:
            return f"seed {self.seed}: {self.arm.label} was trained on other prompts than the baseline"
        if self.base.tasks.keys() != self.arm.tasks.keys():
            apart = len(self.base.tasks.keys() ^ self.arm.tasks.keys())
            told = f"{self.arm.label} was evaluated on other tasks than the baseline ({apart} apart)"
            return f"seed {self.seed}: {told}; an arm must leave the evaluation as it is"
        for metric in metrics:
            for run in (self.base, self.arm):
                if metric not in run.metrics:
                    parts = ", ".join(name for name in run.metrics if name.startswith("eval/"))
                    there = f"; of the evaluation there is {parts}" if parts else ""
                    return f"seed {self.seed}: {metric} was not measured in {run.label}{there}"
                if not math.isfinite(run.metrics[metric]):
                    return f"seed {self.seed}: {metric} is {run.metrics[metric]} in {run.label}"
        return ""


def pairs_of(history: History, base: str, arm: str, seeds: Iterable[int]) -> list[Pair]:
    """The pairs of two arms in the order of their seeds, up to the first that is missing or did not finish.

    Those beyond a gap do not count yet: which runs end early may depend on how they go, and the bets are
    valid for pairs in an order that was fixed before.
    """
    found = finished_pairs(history, base, arm)
    made = []
    for seed in seeds:
        if seed not in found:
            break
        made.append(found[seed])
    return made


def finished_pairs(history: History, base: str, arm: str) -> dict[int, Pair]:
    """Every pair of finished runs, by seed."""
    sides = _runs_by_seed(history, base), _runs_by_seed(history, arm)
    found = {}
    for seed in sorted(sides[0].keys() & sides[1].keys()):
        shared = [version for version in sides[0][seed] if version in sides[1][seed]]
        runs = [(sides[0][seed][version], sides[1][seed][version]) for version in shared]
        done = next((pair for pair in runs if all(run.outcome == "finished" for run in pair)), None)
        if done is not None:
            found[seed] = Pair(seed, *done)
    return found


def failed_runs(history: History, arms: Mapping[str, str]) -> list[Run]:
    """Runs that failed and whose pairs are still wanting, first seed first, each by its label here.

    What has since finished with other code failed no more: then it is its partner that is wanting.

    Args:
        history: all runs.
        arms: digests by label; the baseline is what the others are paired with.
    """
    base, *others = arms.values()
    labels = {digest: label for label, digest in arms.items()}  # it may be another hypothesis's run
    last = {(run.arm, run.seed): run for run in history.runs().values() if run.arm in labels}
    found = []
    for run in last.values():
        if run.outcome == "finished":
            continue
        partners = others if run.arm == base else [run.arm]
        if not all(run.seed in finished_pairs(history, base, arm) for arm in partners):
            found.append(replace(run, label=labels[run.arm]))
    return sorted(found, key=lambda run: (run.seed, run.label))


def _runs_by_seed(history: History, arm: str) -> dict[int, dict[tuple[str, str], Run]]:
    """Runs of an arm, by seed, and by code and machine."""
    found: dict[int, dict[tuple[str, str], Run]] = {}
    for run in history.runs().values():
        if run.arm == arm:
            found.setdefault(run.seed, {})[run.code, run.machine] = run
    return found


def task_differences(pairs: Sequence[Pair]) -> list[float]:
    """Arm − baseline for each evaluation task, averaged over the seeds that have it."""
    found: dict[str, list[float]] = {}
    for pair in pairs:
        for task, reward in pair.arm.tasks.items():
            found.setdefault(task, []).append(reward - pair.base.tasks[task])
    return [float(np.mean(found[task])) for task in sorted(found)]


def gain_bounds(pairs: Sequence[Pair]) -> tuple[float, float] | None:
    """The least and the most that a task can gain; None where a run does not say what can be earned."""
    sides = [(pair.base.bounds, pair.arm.bounds) for pair in pairs]
    known = [(base, arm) for base, arm in sides if base is not None and arm is not None]
    if len(known) < len(sides) or not known:
        return None
    return min(arm[0] - base[1] for base, arm in known), max(arm[1] - base[0] for base, arm in known)
