"""Runs of two arms, seed by seed: what a comparison is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from truing.errors import LabError
from truing.lab.ledger import History, Run


@dataclass(frozen=True)
class Pair:
    """The baseline's run and the arm's, of one seed and one version of the code."""

    seed: int
    base: Run
    arm: Run

    def difference(self, metric: str) -> float:
        """Arm − baseline."""
        missing = [run.label for run in (self.base, self.arm) if metric not in run.metrics]
        if missing:
            raise LabError(
                f"{metric} was not measured",
                got=f"none in {', '.join(missing)}, seed {self.seed}",
                expected="the metric in both runs of a pair",
                remedy="the experiment stands; a criterion about another metric is another hypothesis",
            )
        return self.arm.metrics[metric] - self.base.metrics[metric]


def pairs_of(history: History, base: str, arm: str) -> list[Pair]:
    """The pairs of two arms by seed, up to the first that is missing or did not finish.

    Those beyond a gap do not count yet: which runs end early may depend on how they go, and the bets are
    valid for pairs in an order that was fixed before.
    """
    found = whole(history, base, arm)
    made = []
    for seed in range(len(found)):
        if seed not in found:
            break
        made.append(found[seed])
    return made


def whole(history: History, base: str, arm: str) -> dict[int, Pair]:
    """Every pair of finished runs, by seed."""
    sides = _by_seed(history, base), _by_seed(history, arm)
    found = {}
    for seed in sorted(sides[0].keys() & sides[1].keys()):
        shared = [version for version in sides[0][seed] if version in sides[1][seed]]
        runs = [(sides[0][seed][version], sides[1][seed][version]) for version in shared]
        done = next((pair for pair in runs if all(run.outcome == "finished" for run in pair)), None)
        if done is not None:
            found[seed] = _same_tasks(Pair(seed, *done))
    return found


def broken(history: History, arms: Mapping[str, str]) -> list[Run]:
    """Runs that failed and whose pairs are still wanting, first seed first.

    Args:
        history: all runs.
        arms: digests by label; the baseline is what the others are paired with.
    """
    base, *others = arms.values()
    found = []
    for run in history.runs().values():
        if run.outcome == "finished" or run.arm not in arms.values():
            continue
        partners = others if run.arm == base else [run.arm]
        if not all(run.seed in whole(history, base, arm) for arm in partners):
            found.append(run)
    return sorted(found, key=lambda run: (run.seed, run.label))


def _by_seed(history: History, arm: str) -> dict[int, dict[str, Run]]:
    """Runs of an arm, by seed and version of the code."""
    found: dict[int, dict[str, Run]] = {}
    for run in history.runs().values():
        if run.arm == arm:
            found.setdefault(run.seed, {})[run.code] = run
    return found


def _same_tasks(pair: Pair) -> Pair:
    """The pair, unless its runs were evaluated on different tasks."""
    if pair.base.tasks.keys() != pair.arm.tasks.keys():
        apart = sorted(pair.base.tasks.keys() ^ pair.arm.tasks.keys())
        raise LabError(
            f"baseline and {pair.arm.label} were evaluated on different tasks, seed {pair.seed}",
            got=f"{len(apart)} that only one of them has, {apart[0]} among them",
            expected="the same tasks, to compare one by one",
            remedy="an arm must leave the evaluation as it is",
        )
    return pair


def by_task(pairs: Sequence[Pair]) -> list[float]:
    """Arm − baseline for each evaluation task, averaged over the seeds; seeds that lack a task count not."""
    tasks = sorted(set.intersection(*(set(pair.base.tasks) for pair in pairs))) if pairs else []
    return [float(np.mean([pair.arm.tasks[t] - pair.base.tasks[t] for pair in pairs])) for t in tasks]
