"""Whether an arm itself learns: its rewards before and after its last stage, over all its runs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from truing.analysis.estimate import Estimate
from truing.analysis.intervals import interval, is_significant
from truing.analysis.paired_difference import MIN_DIFFERING_TASKS
from truing.lab.report.numbers import nan_to_none
from truing.lab.stats.pairs import Pair, gain_bounds, task_differences
from truing.lab.store.ledger import History, Run
from truing.utils.format import with_count


@dataclass(frozen=True)
class OwnGain:
    """The mean paired difference over tasks, after − before the last stage, averaged over seeds."""

    before: float
    after: float
    gain: Estimate
    seeds: int
    significant: bool  # at 5 %, by tasks

    @property
    def learned(self) -> bool:
        """Whether a gain is shown."""
        return self.significant and self.gain.mean > 0

    def __str__(self) -> str:
        verdict = (
            "it learned"
            if self.learned
            else "it got worse"
            if self.significant
            else "it is not shown to learn"
        )
        return (
            f"reward {self.before:.3f} before its last stage, {self.after:.3f} after it: {self.gain.signed}"
            f" {self.gain.basis}, {with_count(self.seeds, 'seed')}: {verdict}"
        )

    def facts(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self) | {"gain": nan_to_none(asdict(self.gain)), "learned": self.learned}


def own_gains(history: History, arms: Mapping[str, str], seeds: Sequence[int]) -> dict[str, OwnGain]:
    """Return the gain of each arm with a finished run that was evaluated before its last stage.

    Args:
        history: all runs.
        arms: digests by label.
        seeds: of the experiment.
    """
    gains = {label: _own_gain(history, digest, seeds) for label, digest in arms.items()}
    return {label: gain for label, gain in gains.items() if gain is not None}


def _own_gain(history: History, digest: str, seeds: Sequence[int]) -> OwnGain | None:
    runs = (run for run in history.runs().values() if run.arm == digest and run.seed in seeds)
    pairs = [_before_and_after(run) for run in runs if run.outcome == "finished" and run.before]
    if not pairs:
        return None
    differences = task_differences(pairs)
    gain = interval(differences, gain_bounds(pairs))
    differing = sum(each != 0 for each in differences)
    return OwnGain(
        before=float(np.mean([np.mean([*pair.base.tasks.values()]) for pair in pairs])),
        after=float(np.mean([np.mean([*pair.arm.tasks.values()]) for pair in pairs])),
        gain=gain,
        seeds=len({pair.seed for pair in pairs}),
        significant=differing >= MIN_DIFFERING_TASKS and is_significant(gain, differences),
    )


def _before_and_after(run: Run) -> Pair:
    """Return a run as a pair with itself before its last stage, by the tasks that are graded in both."""
    graded = sorted(run.before.keys() & run.tasks.keys())
    sides = ({task: rewards[task] for task in graded} for rewards in (run.before, run.tasks))
    before, after = (replace(run, tasks=tasks) for tasks in sides)
    return Pair(run.seed, before, after)
