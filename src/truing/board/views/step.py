"""The pages of a step, of a sample, and of a group."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from truing.analysis.program_calls import call_tree
from truing.board.data.events import incidents_at
from truing.board.data.run_view import RunView
from truing.board.views.charts import metric_of, recipe_limits
from truing.board.views.findings import finding_card, sample_findings, verdicts_of
from truing.board.views.tokens import sample_json, shorten_and_count, token_window
from truing.errors import RecordError
from truing.record import StepLine
from truing.types.step_table import StepTable
from truing.utils.jsonl import dump_json

MAX_SIDE_BY_SIDE = 32
"""Maximum samples of a group on its page."""


def step(run_view: RunView, stage: str, number: int, *, samples: bool = True) -> dict[str, Any]:
    """Return a step: metrics with definitions, ratios, and optionally samples."""
    index = run_view.row_index(stage, number)
    line = run_view.step_at(index)
    table = run_view.table(line) if samples else None
    return {
        "stage": stage,
        "step": number,
        "at": index + 1,
        "of": len(run_view.run.columns),
        "before": _step_json(run_view, index - 1),
        "after": _step_json(run_view, index + 1),
        "label": line.loss_label,
        "numbers": [
            {"value": value, **vars(metric_of(name)), "name": name} for name, value in line.metrics.items()
        ],
        "seconds": dict(line.seconds),
        "ratios": ratios_of(run_view, line),
        "findings": [finding_card(run_view, each) for each in run_view.findings(stage, line.step)],
        "incidents": incidents_at(run_view.run.events, stage, line.step),
        "samples": [_sample_json(run_view, table, i) for i in range(len(table.samples))] if table else [],
    }


def sample(run_view: RunView, stage: str, number: int, name: str, token: int) -> dict[str, Any]:
    """Return a sample of a step with a window of its tokens, and its messages."""
    line = run_view.find_step(stage, number)
    table, index = run_view.find_sample(line, name)
    names = [each.sample_id for each in table.samples]
    return {
        "before": names[index - 1] if index else None,
        "after": names[index + 1] if index + 1 < len(names) else None,
        "about": _sample_json(run_view, table, index),
        "calls": [call._asdict() for call in call_tree(table, index)],
        "tokens": token_window(run_view, table, index, token),
        "messages": [_message(each) for each in table.samples[index].messages],
        "findings": sample_findings(run_view, line, table.samples[index]),
    }


def group(run_view: RunView, stage: str, number: int, name: str) -> dict[str, Any]:
    """Return the samples of a group, best first; those without a reward last."""
    line = run_view.find_step(stage, number)
    table = run_view.table(line)
    members = [(i, each) for i, each in enumerate(table.samples) if each.group_id == name]
    if not members:
        raise RecordError(f"{stage} {number} has no group {name[:200]}")
    members.sort(key=lambda pair: (math.isnan(pair[1].reward), -pair[1].reward, pair[0]))
    return {
        "group": name,
        "count": len(members),
        "rollouts": len({each.rollout_id for _, each in members}),
        "samples": [
            {
                "about": _sample_json(run_view, table, i),
                "tokens": token_window(run_view, table, i),
                "findings": sample_findings(run_view, table, each),
            }
            for i, each in members[:MAX_SIDE_BY_SIDE]
        ],
    }


def ratios_of(run_view: RunView, line: StepLine) -> dict[str, Any] | None:
    """Return the histogram of ratios of a step, by inner epoch and sign of the advantage."""
    ratios = line.facts.get("ratios")
    if ratios is None:
        return None
    bins = len(ratios["edges"]) + 1
    signs = ("positive", "negative", "zero")
    epochs = [
        {"scored": epoch["scored"], **{sign: _dense(epoch[sign], bins) for sign in signs}}
        for epoch in ratios["epochs"]
    ]
    recipe = run_view.recipe_at(line.stage, line.step)
    limits = {} if isinstance(recipe, str) else recipe_limits(recipe, line.stage)
    edges = {"level": ratios["level"], "edges": ratios["edges"]}
    return {**edges, "epochs": epochs, "limits": limits.get("ratio", [])}


def _step_json(run_view: RunView, row: int) -> dict[str, Any] | None:
    """Return the step of a row, counted from 1; None for an unknown row."""
    columns = run_view.run.columns
    if not 0 <= row < len(columns):
        return None
    return {"stage": columns.stage_of(row), "step": int(columns.step[row]) + 1}


def _sample_json(run_view: RunView, table: StepTable, index: int) -> dict[str, Any]:
    """Return the facts of a sample, with the right answer of its task and the codes of its findings."""
    sample = table.samples[index]
    right = run_view.answers.get(sample.task_id)
    return sample_json(table, index, verdicts_of(run_view, table, sample)) | {
        "right": None if right is None else shorten_and_count(str(right))
    }


def _dense(pairs: Sequence[Sequence[int]], bins: int) -> list[int]:
    counts = [0] * bins
    for index, count in pairs:
        counts[index] = count
    return counts


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    text, calls = message.get("content"), message.get("tool_calls")
    full_text = text if isinstance(text, str) else str(message)
    full_text += "\n" + dump_json(calls).decode() if calls and isinstance(text, str) else ""
    return {"role": str(message.get("role", "")), "text": shorten_and_count(full_text.lstrip("\n"))}
