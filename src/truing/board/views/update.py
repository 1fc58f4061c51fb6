"""One update: its numbers, its ratios, and its samples; one sample, token by token; a group side by side."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from truing.board.data.events import incidents_at
from truing.board.data.run_view import RunView
from truing.board.views.charts import metric_of, recipe_limits
from truing.board.views.findings import finding_card, sample_findings, verdicts_of
from truing.board.views.tokens import sample_json, shorten_and_count, token_window
from truing.errors import RecordError
from truing.record import SampleRow, StepRow
from truing.utils.jsonl import dump_json

MAX_SIDE_BY_SIDE = 32
"""Samples of a group that are told at once."""


def update(opened: RunView, stage: str, number: int, *, samples: bool = True) -> dict[str, Any]:
    """One update: its numbers with their definitions, its ratios, and its samples if they are wanted."""
    at = opened.row_index(stage, number)
    step = opened.step_at(at)
    rows = opened.rows(step) if samples else ()
    return {
        "stage": stage,
        "update": number,
        "at": at + 1,
        "of": len(opened.run.columns),
        "before": _update_json(opened, at - 1),
        "after": _update_json(opened, at + 1),
        "label": step.loss_label,
        "numbers": [
            {"value": value, **vars(metric_of(name)), "name": name} for name, value in step.metrics.items()
        ],
        "seconds": dict(step.seconds),
        "ratios": ratios_of(opened, step),
        "findings": [finding_card(opened, each) for each in opened.findings(stage, step.step)],
        "incidents": incidents_at(opened.run.events, stage, step.step),
        "samples": [_sample_json(opened, step, row, i) for i, row in enumerate(rows)],
    }


def sample(opened: RunView, stage: str, number: int, name: str, token: int) -> dict[str, Any]:
    """A sample of an update with a window of its tokens, and the messages that it was made of."""
    step = opened.find_update(stage, number)
    row, index = opened.find_sample(step, name)
    names = [each.sample.sample_id for each in opened.rows(step)]
    return {
        "before": names[index - 1] if index else None,
        "after": names[index + 1] if index + 1 < len(names) else None,
        "about": _sample_json(opened, step, row, index),
        "tokens": token_window(opened, step, row, token),
        "messages": [_message(each) for each in row.messages],
        "findings": sample_findings(opened, step, row),
    }


def group(opened: RunView, stage: str, number: int, name: str) -> dict[str, Any]:
    """The samples of a group side by side, best first; those without a reward last."""
    step = opened.find_update(stage, number)
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
                "about": _sample_json(opened, step, row, i),
                "tokens": token_window(opened, step, row),
                "findings": sample_findings(opened, step, row),
            }
            for i, row in own[:MAX_SIDE_BY_SIDE]
        ],
    }


def ratios_of(opened: RunView, step: StepRow) -> dict[str, Any] | None:
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
    limits = {} if isinstance(recipe, str) else recipe_limits(recipe, step.stage)
    edges = {"level": told["level"], "edges": told["edges"]}
    return {**edges, "epochs": epochs, "limits": limits.get("ratio", [])}


def _update_json(opened: RunView, row: int) -> dict[str, Any] | None:
    """The update of a row, as a person counts; None where there is none."""
    columns = opened.run.columns
    if not 0 <= row < len(columns):
        return None
    return {"stage": columns.stage_of(row), "update": int(columns.step[row]) + 1}


def _sample_json(opened: RunView, step: StepRow, row: SampleRow, index: int) -> dict[str, Any]:
    """What there is to say of a sample, with the codes of findings that name it."""
    return sample_json(row, index, verdicts_of(opened, step, row))


def _dense(pairs: Sequence[Sequence[int]], bins: int) -> list[int]:
    counts = [0] * bins
    for place, count in pairs:
        counts[place] = count
    return counts


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    text, calls = message.get("content"), message.get("tool_calls")
    said = text if isinstance(text, str) else str(message)
    said += "\n" + dump_json(calls).decode() if calls and isinstance(text, str) else ""
    return {"role": str(message.get("role", "")), "text": shorten_and_count(said.lstrip("\n"))}
