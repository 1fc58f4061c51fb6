"""Figures of a lab: effects with their bounds, and curves."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from truing.lab.run.design import BASELINE
from truing.lab.store.lab import Lab
from truing.lab.store.ledger import Run
from truing.lab.verdicts.verdict import HypothesisVerdict

COLORS = ("#7f7f7f", "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e")
"""The first is the baseline's, gray."""

Figure = dict[str, Any]


def effects_figure(verdicts: Mapping[str, HypothesisVerdict]) -> Figure:
    """Return every effect with its bounds, and the smallest effect of interest."""
    finite = [each for each in verdicts.values() if math.isfinite(each.effect)]
    if not finite:
        return {}
    names = [f"{each.hypothesis} ({each.metric})" for each in finite]
    with_bounds = [each if math.isfinite(each.low + each.high) else None for each in finite]
    trace = {
        "type": "scatter",
        "mode": "markers",
        "name": "effect",
        "x": [each.effect for each in finite],
        "y": names,
        "error_x": {
            "array": [each.high - each.effect if each else 0 for each in with_bounds],
            "arrayminus": [each.effect - each.low if each else 0 for each in with_bounds],
        },
        "text": [each.verdict for each in finite],
    }
    smallest = {
        "type": "scatter",
        "mode": "markers",
        "name": "smallest effect of interest",
        "x": [each.smallest_effect for each in finite],
        "y": names,
        "marker": {"symbol": "line-ns-open", "size": 16},
    }
    layout = {
        "title": {"text": "Effects: arm − baseline"},
        "height": 160 + 40 * len(finite),
        "shapes": [
            {"type": "line", "x0": 0, "x1": 0, "yref": "paper", "y0": 0, "y1": 1, "line": {"dash": "dot"}}
        ],
    }
    return {
        "data": [trace, smallest],
        "layout": layout | {"yaxis": {"autorange": "reversed", "automargin": True}},
    }


def curves_figure(lab: Lab, verdict: HypothesisVerdict) -> Figure:
    """Return the reward curves of all arms; empty before the baseline has a run."""
    declaration = lab.declaration(lab.hypotheses[verdict.hypothesis])
    if declaration is None:
        return {}
    runs = {label: _finished_runs(lab, arm) for label, arm in declaration.arms.items()}
    if not runs[BASELINE]:
        return {}
    return {
        "data": list(_curves(runs)),
        "layout": {
            "title": {"text": "Reward by step: each seed, and the mean of each arm"},
            "xaxis": {"title": {"text": "step of the last stage"}},
            "yaxis": {"title": {"text": "mean reward"}},
        },
    }


def _finished_runs(lab: Lab, arm: str) -> list[Run]:
    runs = [run for run in lab.history.runs().values() if run.arm == arm and run.outcome == "finished"]
    return sorted(runs, key=lambda run: run.seed)


def _curves(runs: Mapping[str, Sequence[Run]]) -> Iterator[Figure]:
    """Yield a thin line for each run, a thick one for the mean of an arm."""
    for color, (label, arm_runs) in zip(COLORS * len(runs), runs.items(), strict=False):
        for run in arm_runs:
            yield _line(list(run.curve), f"{label}, seed {run.seed}", color, 0.6) | {"showlegend": False}
        curves = [run.curve for run in arm_runs if run.curve]
        if curves:
            steps = min(map(len, curves))
            mean = np.mean([curve[:steps] for curve in curves], axis=0)
            yield _line(mean.tolist(), label, color, 3.0)


def _line(values: Sequence[float], name: str, color: str, width: float) -> Figure:
    finite_values = [value if math.isfinite(value) else None for value in values]
    style = {"color": color, "width": width}
    return {"type": "scatter", "mode": "lines", "y": finite_values, "name": name, "line": style}
