"""Pairs of runs of two arms, seed by seed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from truing.lab.store.ledger import History, Run


@dataclass(frozen=True)
class Pair:
    """The runs of the baseline and of an arm: the same seed, code version and kind of machine."""

    seed: int
    base: Run
    arm: Run

    def difference(self, metric: str) -> float:
        """Return arm − baseline."""
        return self.arm.metrics[metric] - self.base.metrics[metric]

    def why_not_comparable(self, metrics: Iterable[str], *, same_prompts: bool = False) -> str:
        """Return why its runs cannot be compared; "" if they can."""
        if same_prompts and self.base.prompts != self.arm.prompts:
            return f"seed {self.seed}: {self.arm.label} was trained on other prompts than the baseline"
        if self.base.tasks.keys() != self.arm.tasks.keys():
            different = len(self.base.tasks.keys() ^ self.arm.tasks.keys())
            text = f"{self.arm.label} was evaluated on other tasks than the baseline ({different} differ)"
            return f"seed {self.seed}: {text}; an arm must not change the evaluation"
        for metric in metrics:
            for run in (self.base, self.arm):
                if metric not in run.metrics:
                    parts = ", ".join(name for name in run.metrics if name.startswith("eval/"))
                    available = f"; the evaluation has {parts}" if parts else ""
                    return f"seed {self.seed}: {metric} was not measured in {run.label}{available}"
                if not math.isfinite(run.metrics[metric]):
                    return f"seed {self.seed}: {metric} is {run.metrics[metric]} in {run.label}"
        return ""


def pairs_of(history: History, base: str, arm: str, seeds: Iterable[int]) -> list[Pair]:
    """Return the pairs of two arms in the order of seeds, up to the first missing or unfinished pair.

    Pairs after a gap do not count yet: which runs end early may depend on their results, and the bets need
    an order of pairs that is fixed in advance.
    """
    by_seed = finished_pairs(history, base, arm)
    pairs = []
    for seed in seeds:
        if seed not in by_seed:
            break
        pairs.append(by_seed[seed])
    return pairs


def finished_pairs(history: History, base: str, arm: str) -> dict[int, Pair]:
    """Return every pair of finished runs, by seed."""
    runs_by_seed = _runs_by_seed(history, base), _runs_by_seed(history, arm)
    pairs = {}
    for seed in sorted(runs_by_seed[0].keys() & runs_by_seed[1].keys()):
        versions = [version for version in runs_by_seed[0][seed] if version in runs_by_seed[1][seed]]
        runs = [(runs_by_seed[0][seed][version], runs_by_seed[1][seed][version]) for version in versions]
        finished = next((pair for pair in runs if all(run.outcome == "finished" for run in pair)), None)
        if finished is not None:
            pairs[seed] = Pair(seed, *finished)
    return pairs


def failed_runs(history: History, arms: Mapping[str, str]) -> list[Run]:
    """Return failed runs whose pairs are still missing, by seed, each with its label here.

    A run that has since finished with other code does not count as failed: then its partner is missing.

    Args:
        history: all runs.
        arms: digests by label; the first is the baseline.
    """
    base, *arm_digests = arms.values()
    labels = {digest: label for label, digest in arms.items()}  # the run may be that of another hypothesis
    last = {(run.arm, run.seed): run for run in history.runs().values() if run.arm in labels}
    failed = []
    for run in last.values():
        if run.outcome == "finished":
            continue
        partners = arm_digests if run.arm == base else [run.arm]
        if not all(run.seed in finished_pairs(history, base, arm) for arm in partners):
            failed.append(replace(run, label=labels[run.arm]))
    return sorted(failed, key=lambda run: (run.seed, run.label))


def _runs_by_seed(history: History, arm: str) -> dict[int, dict[tuple[str, str], Run]]:
    """Return the runs of an arm, by seed, then by code and machine."""
    by_seed: dict[int, dict[tuple[str, str], Run]] = {}
    for run in history.runs().values():
        if run.arm == arm:
            by_seed.setdefault(run.seed, {})[run.code, run.machine] = run
    return by_seed


def task_differences(pairs: Sequence[Pair]) -> list[float]:
    """Return arm − baseline for each evaluation task, averaged over the seeds that have it."""
    by_task: dict[str, list[float]] = {}
    for pair in pairs:
        for task, reward in pair.arm.tasks.items():
            by_task.setdefault(task, []).append(reward - pair.base.tasks[task])
    return [float(np.mean(by_task[task])) for task in sorted(by_task)]


def gain_bounds(pairs: Sequence[Pair]) -> tuple[float, float] | None:
    """Return the least and the largest possible gain of a task; None if a run lacks reward bounds."""
    bounds = [(pair.base.bounds, pair.arm.bounds) for pair in pairs]
    known = [(base, arm) for base, arm in bounds if base is not None and arm is not None]
    if len(known) < len(bounds) or not known:
        return None
    return min(arm[0] - base[1] for base, arm in known), max(arm[1] - base[0] for base, arm in known)
