"""Whether an arm itself learns: its rewards before and after its last stage, by task, over its runs."""

from collections.abc import Mapping, Sequence

import numpy as np

from truing.analysis.evaluation import Evaluation
from truing.analysis.stage_gain import StageGain, stage_gain
from truing.lab.report.numbers import nan_to_none
from truing.lab.store.ledger import History, Run


def own_gains(history: History, arms: Mapping[str, str], seeds: Sequence[int]) -> dict[str, StageGain]:
    """Return the gain of each arm with a finished run that was evaluated before its last stage.

    Args:
        history: all runs.
        arms: digests by label.
        seeds: of the experiment.
    """
    done = [run for run in history.runs().values() if run.outcome == "finished" and run.before]
    runs = {
        label: [run for run in done if run.arm == arm and run.seed in seeds] for label, arm in arms.items()
    }
    gains = {label: stage_gain(_evaluations(each)) for label, each in runs.items() if each}
    return {label: gain for label, gain in gains.items() if gain is not None}


def _evaluations(runs: Sequence[Run]) -> list[Evaluation]:
    """Return the mean evaluation before the last stage and the one after it, on the tasks graded in all."""
    tasks = sorted(set.intersection(*({*run.before} & {*run.tasks} for run in runs)))
    known = [run.bounds for run in runs if run.bounds is not None]
    bounds = (
        (min(low for low, _ in known), max(high for _, high in known)) if len(known) == len(runs) else None
    )
    sides = {"before": [run.before for run in runs], "after": [run.tasks for run in runs]}
    return [
        Evaluation(
            name, {task: float(np.mean([each[task] for each in side])) for task in tasks}, {}, {}, {}, bounds
        )
        for name, side in sides.items()
    ]


def gain_text(gain: StageGain) -> str:
    """Return a gain as text: ``reward 0.395 → 0.412, +0.017 [-0.021, +0.055] of 200 tasks: …``."""
    return f"reward {gain}" if gain.significant else f"reward {gain}: not shown to learn"


def gain_facts(gain: StageGain) -> dict[str, float | bool | None]:
    """Return a gain as JSON."""
    means = {side.name: side.estimate().mean for side in (gain.before, gain.after)}
    paired = {"gain": gain.paired.mean, "low": gain.paired.low, "high": gain.paired.high}
    return means | nan_to_none(paired) | {"learned": gain.is_gain}
