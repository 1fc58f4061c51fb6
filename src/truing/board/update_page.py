"""One update: its numbers, its ratios, and its samples; one sample, token by token; a group side by side."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from truing.board.charts import bounds, metric_of
from truing.board.opened import Opened
from truing.board.overview import finding
from truing.board.xray import about, short, tokens
from truing.errors import RecordError
from truing.record import SampleRow, StepRow

SIDE_BY_SIDE = 32
"""Samples of a group that are told at once."""


def find(opened: Opened, stage: str, number: int) -> StepRow:
    """An update by its stage and its number in it, from 1."""
    return opened.step(_row_of(opened, stage, number))


def find_row(opened: Opened, step: StepRow, name: str) -> tuple[SampleRow, int]:
    """A sample of an update, and the how-manieth it is."""
    for index, row in enumerate(opened.rows(step)):
        if row.sample.sample_id == name:
            return row, index
    raise RecordError(f"{step.stage} {step.step + 1} has no sample {name[:200]}")


def update(opened: Opened, stage: str, number: int) -> dict[str, Any]:
    """One update: its numbers with their definitions, its ratios, and its samples."""
    at = _row_of(opened, stage, number)
    step = opened.step(at)
    return {
        "stage": stage,
        "update": number,
        "at": at + 1,
        "of": len(opened.run.columns),
        "label": step.loss_label,
        "numbers": [
            {"value": value, **vars(metric_of(name)), "name": name} for name, value in step.metrics.items()
        ],
        "seconds": dict(step.seconds),
        "ratios": ratios_of(opened, step),
        "findings": [finding(each) for each in opened.findings(stage, step.step)],
        "samples": [_about(opened, step, row, i) for i, row in enumerate(opened.rows(step))],
    }


def sample(opened: Opened, stage: str, number: int, name: str, token: int) -> dict[str, Any]:
    """A sample of an update with a window of its tokens, and the messages that it was made of."""
    step = find(opened, stage, number)
    row, index = find_row(opened, step, name)
    found = [each for each in opened.findings(stage, step.step) if each.sample_id == name]
    return {
        "about": _about(opened, step, row, index),
        "tokens": tokens(opened, step, row, token),
        "messages": [_message(each) for each in row.messages],
        "findings": [finding(each) for each in found],
    }


def group(opened: Opened, stage: str, number: int, name: str) -> dict[str, Any]:
    """The samples of a group side by side, best first; those without a reward last."""
    step = find(opened, stage, number)
    own = [(i, row) for i, row in enumerate(opened.rows(step)) if row.sample.group_id == name]
    if not own:
        raise RecordError(f"{stage} {number} has no group {name[:200]}")
    own.sort(key=lambda each: (math.isnan(each[1].sample.reward), -each[1].sample.reward, each[0]))
    return {
        "group": name,
        "count": len(own),
        "samples": [
            {"about": _about(opened, step, row, i), "tokens": tokens(opened, step, row)}
            for i, row in own[:SIDE_BY_SIDE]
        ],
    }


def ratios_of(opened: Opened, step: StepRow) -> dict[str, Any] | None:
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
    recipe = opened.recipe_at(step.stage, step.step)
    limits = {} if isinstance(recipe, str) else bounds(recipe, step.stage)
    edges = {"level": told["level"], "edges": told["edges"]}
    return {**edges, "epochs": epochs, "limits": limits.get("ratio", [])}


def _row_of(opened: Opened, stage: str, number: int) -> int:
    """The row of an update in the columns."""
    columns = opened.run.columns
    if (at := columns.find(stage, number - 1)) is None:
        ends = {name: int(columns.step[end - 1]) + 1 for name, _, end in columns.stages}
        expected = f"up to {stage} {ends[stage]}" if stage in ends else ", ".join(ends) or "none is made yet"
        raise RecordError(f"{opened.name} has no update {stage[:50]} {number}", expected=expected)
    return at


def _about(opened: Opened, step: StepRow, row: SampleRow, index: int) -> dict[str, Any]:
    """What there is to say of a sample, with the codes of findings that name it."""
    found = opened.findings(step.stage, step.step)
    return about(row, index, [each.code for each in found if each.sample_id == row.sample.sample_id])


def _dense(pairs: Sequence[Sequence[int]], bins: int) -> list[int]:
    counts = [0] * bins
    for place, count in pairs:
        counts[place] = count
    return counts


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    text = message.get("content")
    return {
        "role": str(message.get("role", "")),
        "text": short(text if isinstance(text, str) else str(message)),
    }
