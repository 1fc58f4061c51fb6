"""One run: what was found, how it stands, its charts, its updates and their samples."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from truing.board.charts import Chart, bounds, draw, find_chart, metric_of, rooms_of
from truing.board.opened import Opened
from truing.board.overview import cards, finding, happened, line
from truing.board.xray import about, short, tokens
from truing.doctor.rules import RULES
from truing.errors import RecordError
from truing.glance import findings
from truing.record import SampleRow, StepRow
from truing.record.told import evaluations_told

AROUND = 6
"""Tokens that an excerpt shows on each side of what is meant."""

SIDE_BY_SIDE = 32
"""Samples of a group that are told at once."""


def head(opened: Opened) -> dict[str, Any]:
    """Everything above the charts."""
    facts, columns, told = opened.run.facts, opened.run.columns, line(opened)
    return {
        **told,
        "findings": [_finding(opened, each) for each in told["findings"]],
        "scorecard": cards(opened),
        "rooms": rooms_of(columns),
        "spans": spans(opened),
        "bounds": _bounds(opened),
        "ratios": _ratios(opened, opened.step(len(columns) - 1)) if len(columns) else None,
        "evaluations_at": evaluations_at(opened),
        "events": happened(opened.run.events),
        "words": _words(opened),
        "recipe": opened.run.reader.recipe(),
        "trouble": opened.recipe if isinstance(opened.recipe, str) else "",
        "about": {
            "model": facts.get("model", {}),
            "versions": facts.get("versions", {}),
            "machine": facts.get("machine", {}),
            "contract": facts.get("contract", {}),
            "judged": facts.get("judged", {}),
        },
    }


def chart(opened: Opened, name: str, start: int, end: int | None) -> dict[str, Any]:
    """A chart of the run."""
    columns = opened.run.columns
    found = find_chart(name, columns)
    if found is None:
        raise RecordError(f"there is no chart {name}")
    return draw(found, columns, start, end)


def number(opened: Opened, name: str) -> dict[str, Any]:
    """One number of the run, as a chart of its own."""
    return draw(Chart(name, name, (name,)), opened.run.columns, 0, None)


def update(opened: Opened, stage: str, number: int) -> dict[str, Any]:
    """One update: its numbers with their definitions, its ratios, and its samples."""
    row = opened.run.columns.find(stage, number - 1)
    step = opened.step(row)
    rows = opened.rows(step)
    return {
        "stage": stage,
        "update": number,
        "at": row + 1,
        "of": len(opened.run.columns),
        "label": step.loss_label,
        "numbers": [
            {"value": value, **vars(metric_of(name)), "name": name} for name, value in step.metrics.items()
        ],
        "seconds": dict(step.seconds),
        "ratios": _ratios(opened, step),
        "findings": [
            finding(each)
            for each in findings(opened.run.events)
            if (each.stage, each.step + 1) == (stage, number)
        ],
        "samples": [about(each, i, _found(opened, step, each)) for i, each in enumerate(rows)],
    }


def sample(opened: Opened, stage: str, number: int, name: str, token: int) -> dict[str, Any]:
    """A sample of an update with a window of its tokens, and the messages that it was made of."""
    step, row, index = _row(opened, stage, number, name)
    return {
        "about": about(row, index, _found(opened, step, row)),
        "tokens": tokens(opened, step, row, token),
        "messages": [_message(each) for each in row.messages],
        "findings": [finding(each) for each in findings(opened.run.events) if each.sample_id == name],
    }


def group(opened: Opened, stage: str, number: int, name: str) -> dict[str, Any]:
    """The samples of a group side by side, best first."""
    step = opened.step(opened.run.columns.find(stage, number - 1))
    own = [(i, row) for i, row in enumerate(opened.rows(step)) if row.sample.group_id == name]
    if not own:
        raise RecordError(f"{stage} {number} has no group {name}")
    own.sort(key=lambda each: (math.isnan(each[1].sample.reward), -each[1].sample.reward, each[0]))
    return {
        "group": name,
        "count": len(own),
        "samples": [
            {"about": about(row, i, _found(opened, step, row)), "tokens": tokens(opened, step, row)}
            for i, row in own[:SIDE_BY_SIDE]
        ],
    }


def _row(opened: Opened, stage: str, number: int, name: str) -> tuple[StepRow, SampleRow, int]:
    step = opened.step(opened.run.columns.find(stage, number - 1))
    for index, row in enumerate(opened.rows(step)):
        if row.sample.sample_id == name:
            return step, row, index
    raise RecordError(f"{stage} {number} has no sample {name}")


def _found(opened: Opened, step: StepRow, row: SampleRow) -> list[str]:
    """Codes of findings that name a sample."""
    place = step.stage, step.step, row.sample.sample_id
    return [
        each.code for each in findings(opened.run.events) if (each.stage, each.step, each.sample_id) == place
    ]


def _finding(opened: Opened, each: Mapping[str, Any]) -> dict[str, Any]:
    """A finding with its rule's words, and the text around its place."""
    rule = RULES.get(each["code"])
    return {
        **each,
        "title": rule.title if rule else "",
        "why": rule.section("Why it is silent") if rule else "",
        "excerpt": _excerpt(opened, each),
    }


def _excerpt(opened: Opened, each: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Text of the tokens around a finding's place, each with whether it is meant."""
    if not each["sample_id"] or each["end"] <= each["start"]:
        return []
    try:
        _, row, _ = _row(opened, each["stage"], each["update"], each["sample_id"])
    except RecordError:  # a guard undid the update: its rows are in the folder `abandoned`
        return []
    low, high = max(0, each["start"] - AROUND), min(each["end"], each["start"] + 2 * AROUND) + AROUND
    ids = row.sample.token_ids[low:high].tolist()
    texts = opened.texts(ids)
    return [(text, each["start"] <= low + i < each["end"]) for i, text in enumerate(texts)]


def spans(opened: Opened) -> list[dict[str, Any]]:
    """Each stage with the rows it has, and the number of its first update."""
    columns = opened.run.columns
    return [
        {"stage": name, "start": start, "end": end, "first": int(columns.step[start]) + 1}
        for name, start, end in columns.stages
    ]


def _ratios(opened: Opened, step: StepRow) -> dict[str, Any] | None:
    """How ratios of an update are spread: for each inner epoch and sign, the count of each bin."""
    told = step.facts.get("ratios")
    if told is None:
        return None
    bins = len(told["edges"]) + 1
    signs = ("positive", "negative", "zero")
    epochs = [
        {"scored": epoch["scored"], **{sign: _dense(epoch[sign], bins) for sign in signs}}
        for epoch in told["epochs"]
    ]
    limits = {} if isinstance(opened.recipe, str) else bounds(opened.recipe, step.stage)
    return {
        "level": told["level"],
        "edges": told["edges"],
        "epochs": epochs,
        "limits": limits.get("ratio", []),
    }


def _dense(pairs: Sequence[Sequence[int]], bins: int) -> list[int]:
    counts = [0] * bins
    for place, count in pairs:
        counts[place] = count
    return counts


def _bounds(opened: Opened) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """By stage, the numbers that charts are compared with."""
    if isinstance(opened.recipe, str):
        return {}
    return {name: bounds(opened.recipe, name) for name, _, _ in opened.run.columns.stages}


def evaluations_at(opened: Opened) -> list[dict[str, Any]]:
    """Each evaluation after how many updates of the run it was made, with its interval."""
    columns, placed = opened.run.columns, []
    ends = {name: end for name, _, end in columns.stages}
    starts = {name: start for name, start, _ in columns.stages}
    for name, told in evaluations_told(opened.run.events).items():
        stage, _, done = name.partition("@")
        after = name.removeprefix("after_")
        at = 0 if name == "base" else ends.get(after, 0) if not done else starts.get(stage, 0) + int(done)
        placed.append(
            {"name": name, "x": at, **{key: told["estimate"][key] for key in ("mean", "low", "high")}}
        )
    return placed


def _words(opened: Opened) -> list[dict[str, Any]]:
    """First tokens of some updates in words, as the run told them."""
    told: Sequence[Mapping[str, Any]] = [
        event.payload for event in opened.run.events if event.kind == "boundary"
    ]
    return [
        {"stage": each["stage"], "update": each["step"] + 1, "lines": each["lines"]} for each in told[-20:]
    ]


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    text = message.get("content")
    return {
        "role": str(message.get("role", "")),
        "text": short(text if isinstance(text, str) else str(message)),
    }
