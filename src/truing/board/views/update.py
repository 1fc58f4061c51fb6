"""One update: its numbers, its ratios, and its samples; one sample, token by token; a group side by side."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from truing.board.data.events import incidents
from truing.board.data.run_view import Opened
from truing.board.views.charts import bounds, metric_of
from truing.board.views.findings import card, of_sample, verdicts_of
from truing.board.views.tokens import about, short, tokens
from truing.errors import RecordError
from truing.record import SampleRow, StepRow
from truing.utils.jsonl import dump_json

SIDE_BY_SIDE = 32
"""Samples of a group that are told at once."""


def update(opened: Opened, stage: str, number: int, *, samples: bool = True) -> dict[str, Any]:
    """One update: its numbers with their definitions, its ratios, and its samples if they are wanted."""
    at = opened.row_of(stage, number)
    step = opened.step(at)
    rows = opened.rows(step) if samples else ()
    return {
        "stage": stage,
        "update": number,
        "at": at + 1,
        "of": len(opened.run.columns),
        "before": _place(opened, at - 1),
        "after": _place(opened, at + 1),
        "label": step.loss_label,
        "numbers": [
            {"value": value, **vars(metric_of(name)), "name": name} for name, value in step.metrics.items()
        ],
        "seconds": dict(step.seconds),
        "ratios": ratios_of(opened, step),
        "findings": [card(opened, each) for each in opened.findings(stage, step.step)],
        "incidents": incidents(opened.run.events, stage, step.step),
        "samples": [_about(opened, step, row, i) for i, row in enumerate(rows)],
    }


def sample(opened: Opened, stage: str, number: int, name: str, token: int) -> dict[str, Any]:
    """A sample of an update with a window of its tokens, and the messages that it was made of."""
    step = opened.find(stage, number)
    row, index = opened.find_row(step, name)
    names = [each.sample.sample_id for each in opened.rows(step)]
    return {
        "before": names[index - 1] if index else None,
        "after": names[index + 1] if index + 1 < len(names) else None,
        "about": _about(opened, step, row, index),
        "tokens": tokens(opened, step, row, token),
        "messages": [_message(each) for each in row.messages],
        "findings": of_sample(opened, step, row),
    }


def group(opened: Opened, stage: str, number: int, name: str) -> dict[str, Any]:
    """The samples of a group side by side, best first; those without a reward last."""
    step = opened.find(stage, number)
    own = [(i, row) for i, row in enumerate(opened.rows(step)) if row.sample.group_id == name]
    if not own:
        raise RecordError(f"{stage} {number} has no group {name[:200]}")
    own.sort(key=lambda each: (math.isnan(each[1].sample.reward), -each[1].sample.reward, each[0]))
    return {
        "group": name,
        "count": len(own),
        "attempts": len({row.sample.rollout_id for _, row in own}),
        "samples": [
            {
                "about": _about(opened, step, row, i),
                "tokens": tokens(opened, step, row),
                "findings": of_sample(opened, step, row),
            }
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


def _place(opened: Opened, row: int) -> dict[str, Any] | None:
    """The update of a row, as a person counts; None where there is none."""
    columns = opened.run.columns
    if not 0 <= row < len(columns):
        return None
    return {"stage": columns.stage_of(row), "update": int(columns.step[row]) + 1}


def _about(opened: Opened, step: StepRow, row: SampleRow, index: int) -> dict[str, Any]:
    """What there is to say of a sample, with the codes of findings that name it."""
    return about(row, index, verdicts_of(opened, step, row))


def _dense(pairs: Sequence[Sequence[int]], bins: int) -> list[int]:
    counts = [0] * bins
    for place, count in pairs:
        counts[place] = count
    return counts


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    text, calls = message.get("content"), message.get("tool_calls")
    said = text if isinstance(text, str) else str(message)
    said += "\n" + dump_json(calls).decode() if calls and isinstance(text, str) else ""
    return {"role": str(message.get("role", "")), "text": short(said.lstrip("\n"))}
