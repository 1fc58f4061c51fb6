"""One run: what was found, how it stands, and its charts."""

from typing import Any

from truing.board.data.events import evaluations_at, happened, noticed, words
from truing.board.data.malformed import telling
from truing.board.data.run_view import Opened
from truing.board.views.chart_groups import Chart
from truing.board.views.charts import bounds, draw, find_chart, rooms_of
from truing.board.views.findings import card
from truing.board.views.overview import cards, line
from truing.board.views.update import ratios_of
from truing.doctor.report.recorded_findings import folded, recalled
from truing.errors import RecordError

ABOUT = ("model", "versions", "machine", "contract", "judged")
"""What run.json says beside the recipe that a person may want to see."""


def head(opened: Opened) -> dict[str, Any]:
    """Everything above the charts."""
    run, told, trouble = opened.run, line(opened), opened.trouble
    try:
        recipe = run.reader.recipe()
    except RecordError as error:
        recipe, trouble = "", [*trouble, str(error)]
    try:
        with telling("the ratios of the last update"):
            ratios = ratios_of(opened, opened.step(len(run.columns) - 1)) if len(run.columns) else None
    except RecordError as error:
        ratios, trouble = None, [*trouble, str(error)]
    return {
        **told,
        "findings": [card(opened, each) for each in folded(opened.told)],
        "facts": [card(opened, each) for each in folded(recalled(run.events, "fact"))],
        "noticed": noticed(run.events),
        "scorecard": cards(opened),
        "rooms": rooms_of(run.columns),
        "spans": spans(opened),
        "bounds": _bounds(opened),
        "ratios": ratios,
        "evaluations_at": evaluations_at(run),
        "events": happened(run.events),
        "words": words(run.events),
        "recipe": recipe,
        "trouble": "\n".join(trouble),
        "about": {name: run.fact(name) for name in ABOUT},
    }


def chart(opened: Opened, name: str, start: int, end: int | None) -> dict[str, Any]:
    """A chart of the run."""
    columns = opened.run.columns
    found = find_chart(name, columns)
    if found is None:
        raise RecordError(f"there is no chart {name[:200]}")
    return draw(found, columns, start, end)


def number(opened: Opened, name: str) -> dict[str, Any]:
    """One number of the run, as a chart of its own."""
    if name not in opened.run.columns.numbers:
        raise RecordError(f"{opened.name} has no number {name[:200]}")
    return draw(Chart(name, name, (name,)), opened.run.columns, 0, None)


def spans(opened: Opened) -> list[dict[str, Any]]:
    """Each stage with the rows it has, and the number of its first update."""
    columns = opened.run.columns
    return [
        {"stage": name, "start": start, "end": end, "first": int(columns.step[start]) + 1}
        for name, start, end in columns.stages
    ]


def _bounds(opened: Opened) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """By stage, the numbers that charts are compared with: as the recipe had them in its last update."""
    columns = opened.run.columns
    recipes = {name: opened.recipe_at(name, int(columns.step[end - 1])) for name, _, end in columns.stages}
    return {name: bounds(each, name) for name, each in recipes.items() if not isinstance(each, str)}
