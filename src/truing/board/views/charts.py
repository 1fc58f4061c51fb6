"""Charts of a run: the numbers that each draws, what they are, and the bounds that belong to them."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truing.board.data.curves import curve
from truing.board.views.chart_groups import CHART_GROUPS, Chart, ChartGroup
from truing.config import PolicyStage, Recipe
from truing.doctor.rules.smp007 import ODDS
from truing.doctor.truing_run import setup_of
from truing.metrics.definitions import METRICS, name_pattern
from truing.metrics.metric import Metric
from truing.record.update_columns import UpdateColumns

SECONDS = Metric("seconds/<phase>", "s", "Wall-clock seconds of the update that were spent in a phase.", "")


def chart_groups_of(columns: UpdateColumns) -> list[dict[str, Any]]:
    """Rooms with the charts for which a run has numbers; the last has every number that no other shows."""
    found = []
    for room in (*CHART_GROUPS, ungrouped_charts(columns)):
        charts = [chart for chart in room.charts if any(chart_columns(chart, columns))]
        if charts:
            listed = [{"name": chart.name, "title": chart.title} for chart in charts]
            found.append({"title": room.title, "asks": room.question, "charts": listed})
    return found


def ungrouped_charts(columns: UpdateColumns) -> ChartGroup:
    """Numbers that no chart shows, one chart each: nothing that is recorded is hidden."""
    shown = {name for room in CHART_GROUPS for chart in room.charts for name in chart_columns(chart, columns)}
    charts = tuple(Chart(f"~{name}", name, (name,)) for name in columns.numbers if name not in shown)
    return ChartGroup("Everything else", "What no chart above shows.", charts)


def find_chart(name: str, columns: UpdateColumns) -> Chart | None:
    """A chart by its name."""
    every = (chart for room in (*CHART_GROUPS, ungrouped_charts(columns)) for chart in room.charts)
    return next((chart for chart in every if chart.name == name), None)


def chart_columns(chart: Chart, columns: UpdateColumns) -> list[str]:
    """The columns that a chart draws, in its order."""
    found = []
    for name in chart.names:
        if name.endswith("*"):
            found += [each for each in columns.numbers if each.startswith(name[:-1])]
        elif name in columns.numbers:
            found.append(name)
    return found


def chart_data(chart: Chart, columns: UpdateColumns, start: int, end: int | None) -> dict[str, Any]:
    """A chart with its curves over updates ``[start, end)``, and the definition of each number.

    Where none of its numbers is above 0 there, it has no log axis, which could show none of them.
    """
    names = chart_columns(chart, columns)
    log = chart.log and any(map(_any_positive, (columns.column(name)[start:end] for name in names)))
    metrics = [metric_of(name) for name in names]
    shared = _prefix(names)
    return {
        "name": chart.name,
        "title": chart.title,
        "shape": chart.shape,
        "log": log,
        "units": list(dict.fromkeys(metric.unit for metric in metrics if metric.unit)),
        "series": [
            {"name": name, "label": name[len(shared) :], **curve(columns.column(name), start, end, log)}
            for name in names
        ],
        "definitions": [vars(metric) for metric in dict.fromkeys(metrics)],
    }


def _any_positive(values_N: NDArray[np.float64]) -> bool:
    return bool((np.isfinite(values_N) & (values_N > 0)).any())


def metric_of(name: str) -> Metric:
    """What a number is; every recorded one is in the table."""
    found = (metric for told, metric in _patterns() if told.fullmatch(name))
    return next(found, Metric(name, "", "", ""))


@cache
def _patterns() -> list[tuple[re.Pattern[str], Metric]]:
    return [(name_pattern(metric.name), metric) for metric in (*METRICS, SECONDS)]


def _prefix(names: Sequence[str]) -> str:
    """What all names begin with, up to a slash: a legend need not say it each time."""
    if len(names) < 2:
        return ""
    parts = [name.split("/")[:-1] for name in names]
    same = []
    for column in zip(*parts, strict=False):
        if len(set(column)) > 1:
            break
        same.append(column[0])
    return "".join(f"{part}/" for part in same)


def recipe_limits(recipe: Recipe, stage: str) -> dict[str, list[dict[str, Any]]]:
    """For charts of a stage, the numbers that its recipe compares with, each with its name."""
    cfg = recipe.stage(stage)
    if not isinstance(cfg, PolicyStage):
        return {"grad": _lines({"optimizer.max_grad_norm": recipe.optimizer.max_grad_norm})}
    setup = setup_of(recipe, stage)
    low, high = setup.clip_low or math.inf, setup.clip_high or math.inf
    return {
        "ratio": _lines({"1 − clip_low": 1 - low, "1 + clip_high": 1 + high, "max_ratio": setup.max_ratio}),
        "kl": _lines({"kl.target": recipe.kl.target, "kl.cap": recipe.kl.cap}),
        "entropy": _lines({"entropy.target": recipe.entropy.target}),
        "grad": _lines({"optimizer.max_grad_norm": recipe.optimizer.max_grad_norm}),
        "audit": _lines({"EVIDENCE from here": ODDS}),
        "alignment": _lines({"must be": 1.0}),
        "length": _lines({"sampling.max_new_tokens, of each turn": float(recipe.sampling.max_new_tokens)}),
        "explained": _lines({"the returns' own mean": 0.0}),
    }


def _lines(named: Mapping[str, float | None]) -> list[dict[str, Any]]:
    return [{"label": name, "y": y} for name, y in named.items() if y is not None and math.isfinite(y)]
