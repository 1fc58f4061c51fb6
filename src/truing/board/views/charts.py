"""Charts of a run: their curves, the definitions of their metrics, and the limits of the recipe."""

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
from truing.record.step_columns import StepColumns

SECONDS = Metric("seconds/<phase>", "s", "Wall-clock seconds of one phase of the step.", "")


def chart_groups_of(columns: StepColumns) -> list[dict[str, Any]]:
    """Return the chart groups for which a run has metrics; the last group shows all remaining metrics."""
    groups = []
    for group in (*CHART_GROUPS, ungrouped_charts(columns)):
        charts = [chart for chart in group.charts if any(chart_columns(chart, columns))]
        if charts:
            chart_names = [{"name": chart.name, "title": chart.title} for chart in charts]
            groups.append({"title": group.title, "asks": group.question, "charts": chart_names})
    return groups


def ungrouped_charts(columns: StepColumns) -> ChartGroup:
    """Return a group with one chart for each metric in no other chart, so that none is hidden."""
    grouped = {
        name for group in CHART_GROUPS for chart in group.charts for name in chart_columns(chart, columns)
    }
    charts = tuple(Chart(f"~{name}", name, (name,)) for name in columns.numbers if name not in grouped)
    return ChartGroup("Other", "Metrics not in a chart above.", charts)


def find_chart(name: str, columns: StepColumns) -> Chart | None:
    """Return the chart of a name, or None."""
    charts = (chart for group in (*CHART_GROUPS, ungrouped_charts(columns)) for chart in group.charts)
    return next((chart for chart in charts if chart.name == name), None)


def chart_columns(chart: Chart, columns: StepColumns) -> list[str]:
    """Return the columns that a chart draws, in its order."""
    names = []
    for name in chart.names:
        if name.endswith("*"):
            names += [column for column in columns.numbers if column.startswith(name[:-1])]
        elif name in columns.numbers:
            names.append(name)
    return names


def chart_data(chart: Chart, columns: StepColumns, start: int, end: int | None) -> dict[str, Any]:
    """Return a chart with its curves over steps ``[start, end)`` and the definitions of its metrics.

    Without a value above 0 in that range, the axis is linear.
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
    """Return the definition of a metric; every recorded metric has one."""
    found = (metric for pattern, metric in _patterns() if pattern.fullmatch(name))
    return next(found, Metric(name, "", "", ""))


@cache
def _patterns() -> list[tuple[re.Pattern[str], Metric]]:
    return [(name_pattern(metric.name), metric) for metric in (*METRICS, SECONDS)]


def _prefix(names: Sequence[str]) -> str:
    """Return the common prefix of names, up to a slash, which a legend leaves out."""
    if len(names) < 2:
        return ""
    prefixes = [name.split("/")[:-1] for name in names]
    common = []
    for column in zip(*prefixes, strict=False):
        if len(set(column)) > 1:
            break
        common.append(column[0])
    return "".join(f"{part}/" for part in common)


def recipe_limits(recipe: Recipe, stage: str) -> dict[str, list[dict[str, Any]]]:
    """Return, by chart of a stage, the limits that its recipe sets, each with its name."""
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
        "audit": _lines({"EVIDENCE threshold": ODDS}),
        "alignment": _lines({"expected": 1.0}),
        "length": _lines({"sampling.max_new_tokens, of each turn": float(recipe.sampling.max_new_tokens)}),
        "explained": _lines({"constant predictor": 0.0}),
    }


def _lines(values: Mapping[str, float | None]) -> list[dict[str, Any]]:
    return [{"label": name, "y": y} for name, y in values.items() if y is not None and math.isfinite(y)]
