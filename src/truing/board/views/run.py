"""One run: what was found, how it stands, and its charts."""

from typing import Any

from truing.board.data.events import evaluations_at, event_log, first_token_lines, startup_findings
from truing.board.data.malformed import as_record_error
from truing.board.data.run_view import RunView
from truing.board.views.chart_groups import Chart
from truing.board.views.charts import chart_data, chart_groups_of, find_chart, recipe_limits
from truing.board.views.findings import finding_card
from truing.board.views.overview import criteria, run_line
from truing.board.views.update import ratios_of
from truing.doctor.report.recorded_findings import recorded_findings, strongest_by_rule
from truing.errors import RecordError

SHOWN_FACTS = ("model", "versions", "machine", "contract", "judged")
"""What run.json says beside the recipe that a person may want to see."""


def run_head(opened: RunView) -> dict[str, Any]:
    """Everything above the charts."""
    run, told, trouble = opened.run, run_line(opened), opened.problems
    try:
        recipe = run.reader.recipe()
    except RecordError as error:
        recipe, trouble = "", [*trouble, str(error)]
    try:
        with as_record_error("the ratios of the last update"):
            ratios = ratios_of(opened, opened.step_at(len(run.columns) - 1)) if len(run.columns) else None
    except RecordError as error:
        ratios, trouble = None, [*trouble, str(error)]
    return {
        **told,
        "findings": [finding_card(opened, each) for each in strongest_by_rule(opened.all_findings)],
        "facts": [
            finding_card(opened, each) for each in strongest_by_rule(recorded_findings(run.events, "fact"))
        ],
        "noticed": startup_findings(run.events),
        "scorecard": criteria(opened),
        "rooms": chart_groups_of(run.columns),
        "spans": stage_spans(opened),
        "bounds": _limits_by_stage(opened),
        "ratios": ratios,
        "evaluations_at": evaluations_at(run),
        "events": event_log(run.events),
        "words": first_token_lines(run.events),
        "recipe": recipe,
        "trouble": "\n".join(trouble),
        "about": {name: run.run_value(name) for name in SHOWN_FACTS},
    }


def chart(opened: RunView, name: str, start: int, end: int | None) -> dict[str, Any]:
    """A chart of the run."""
    columns = opened.run.columns
    found = find_chart(name, columns)
    if found is None:
        raise RecordError(f"there is no chart {name[:200]}")
    return chart_data(found, columns, start, end)


def number(opened: RunView, name: str) -> dict[str, Any]:
    """One number of the run, as a chart of its own."""
    if name not in opened.run.columns.numbers:
        raise RecordError(f"{opened.name} has no number {name[:200]}")
    return chart_data(Chart(name, name, (name,)), opened.run.columns, 0, None)


def stage_spans(opened: RunView) -> list[dict[str, Any]]:
    """Each stage with the rows it has, and the number of its first update."""
    columns = opened.run.columns
    return [
        {"stage": name, "start": start, "end": end, "first": int(columns.step[start]) + 1}
        for name, start, end in columns.stages
    ]


def _limits_by_stage(opened: RunView) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """By stage, the numbers that charts are compared with: as the recipe had them in its last update."""
    columns = opened.run.columns
    recipes = {name: opened.recipe_at(name, int(columns.step[end - 1])) for name, _, end in columns.stages}
    return {name: recipe_limits(each, name) for name, each in recipes.items() if not isinstance(each, str)}
