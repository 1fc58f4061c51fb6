"""The page of a run: findings, status and charts."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from truing.board.data.events import evaluations_at, event_log, startup_findings
from truing.board.data.run_view import RunView
from truing.board.views.chart_groups import Chart
from truing.board.views.charts import chart_data, chart_groups_of, find_chart, recipe_limits
from truing.board.views.findings import finding_card
from truing.board.views.overview import criteria, run_line
from truing.board.views.second_grader import second_grader
from truing.board.views.step import ratios_of
from truing.doctor.report.first_steps import first_tokens
from truing.doctor.report.recorded_findings import recorded_findings, strongest_by_rule
from truing.errors import RecordError
from truing.record.malformed import as_record_error

LISTED_FIRST_TOKENS = 20
"""Steps whose first tokens the page lists, the last of those that have them."""


def run_head(run_view: RunView) -> dict[str, Any]:
    """Return everything but the charts."""
    run, line, problems = run_view.run, run_line(run_view), run_view.problems
    try:
        recipe = run_view.recipe_text
    except RecordError as error:
        recipe, problems = "", [*problems, str(error)]
    try:
        with as_record_error("the ratios of the last step"):
            ratios = ratios_of(run_view, run_view.step_at(len(run.columns) - 1)) if len(run.columns) else None
    except RecordError as error:
        ratios, problems = None, [*problems, str(error)]
    try:
        with as_record_error("the second grader"):
            second = second_grader(run_view)
    except RecordError as error:
        second, problems = None, [*problems, str(error)]
    return {
        **line,
        "second": second,
        "findings": [finding_card(run_view, each) for each in strongest_by_rule(run_view.all_findings)],
        "facts": [
            finding_card(run_view, each) for each in strongest_by_rule(recorded_findings(run.events, "fact"))
        ],
        "noticed": startup_findings(run.events),
        "scorecard": criteria(run_view),
        "rooms": chart_groups_of(run.columns),
        "spans": stage_spans(run_view),
        "bounds": _limits_by_stage(run_view),
        "ratios": ratios,
        "evaluations_at": evaluations_at(run),
        "events": event_log(run.events),
        "words": first_tokens(run.events)[-LISTED_FIRST_TOKENS:],
        "recipe": recipe,
        "trouble": "\n".join(problems),
        "about": run_view.about,
        "checked": run_view.checked,
        "unread": run_view.unread,
    }


def chart(run_view: RunView, name: str, start: int, end: int | None) -> dict[str, Any]:
    """Return a chart of the run."""
    columns = run_view.run.columns
    definition = find_chart(name, columns)
    if definition is None:
        raise RecordError(f"there is no chart {name[:200]}")
    return chart_data(definition, columns, start, end)


def number(run_view: RunView, name: str) -> dict[str, Any]:
    """Return one metric of the run as a chart."""
    if name not in run_view.run.columns.numbers:
        raise RecordError(f"{run_view.name} has no metric {name[:200]}")
    return chart_data(Chart(name, name, (name,)), run_view.run.columns, 0, None)


def curves(run_view: RunView) -> dict[str, Any]:
    """Return what charts of several runs need of each: its stages, evaluations and metrics."""
    return {
        "run": run_view.name,
        "spans": stage_spans(run_view),
        "evaluations_at": evaluations_at(run_view.run),
        "numbers": sorted(run_view.run.columns.numbers),
    }


def stage_spans(run_view: RunView) -> list[dict[str, Any]]:
    """Return each stage with its rows and the number of its first step.

    ``numbers`` are those of all its steps where some lie apart, as in a trace; None if they are consecutive.
    """
    columns = run_view.run.columns
    return [
        {"stage": name, "start": start, "end": end, **_numbers(columns.step[start:end] + 1)}
        for name, start, end in columns.stages
    ]


def _numbers(step_n: NDArray[np.int64]) -> dict[str, Any]:
    """Return the first of the numbers of steps, and all of them if they are not consecutive."""
    apart = int(step_n[-1] - step_n[0]) != len(step_n) - 1
    return {"first": int(step_n[0]), "numbers": step_n.tolist() if apart else None}


def _limits_by_stage(run_view: RunView) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the limits of charts by stage, from the recipe at its last step."""
    columns = run_view.run.columns
    recipes = {name: run_view.recipe_at(name, int(columns.step[end - 1])) for name, _, end in columns.stages}
    return {name: recipe_limits(each, name) for name, each in recipes.items() if not isinstance(each, str)}
