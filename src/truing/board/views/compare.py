"""Compares two runs: gains, configuration differences, the first difference, and results."""

from dataclasses import asdict
from typing import Any

from truing.analysis.compare import (
    SEEDS_DIFFER,
    Delta,
    config_differences,
    first_difference,
    first_text_difference,
)
from truing.analysis.paired_difference import paired_gains, seed_note
from truing.analysis.side_by_side import side_by_side
from truing.board.data.run_view import RunView
from truing.board.views.overview import run_line
from truing.board.views.run import curves
from truing.board.views.tokens import shorten_and_count
from truing.types.step_table import StepTable

MAX_COMPARED_STEPS = 300
"""Maximum steps that are compared token by token. `truing compare` compares all."""

MAX_TEXT_STEPS = 20
"""Steps from the first difference on that are searched for a different answer."""

TOKENS_BEFORE, TOKENS_AFTER = 24, 40
"""Tokens shown around the first different one."""


def compare_runs(first: RunView, second: RunView) -> dict[str, Any]:
    """Return the fast part of a comparison."""
    recipe, facts = config_differences(first.run, second.run)
    return {
        "runs": [run_line(each) | curves(each) for each in (first, second)],
        "gains": [asdict(each) for each in paired_gains(first.run, second.run)],
        "seeds": seed_note(first.run, second.run),
        "recipe": [_delta(each) for each in recipe],
        "facts": [_delta(each) for each in facts],
        "numbers": sorted({*first.run.columns.numbers} & {*second.run.columns.numbers}),
    }


def compare_tokens(first: RunView, second: RunView) -> dict[str, Any]:
    """Return the first difference of two runs, token by token, and their results."""
    for view in (first, second):
        while view.unread:  # a long trace is read in parts
            view.refresh()
    recipe, _ = config_differences(first.run, second.run)
    same_steps, difference = first_difference(first.run, second.run, MAX_COMPARED_STEPS)
    other_seed = any(each.key == "seed" for each in recipe)
    return {
        "same": same_steps,
        "looked_at": MAX_COMPARED_STEPS,
        "note": SEEDS_DIFFER if other_seed else "",
        "first_difference": difference and asdict(difference) | {"step": difference.step + 1},
        "words": None if difference is None or other_seed else _text_difference(first, second, same_steps),
        "beside": [asdict(each) for each in side_by_side(first.run, second.run)],
    }


def _text_difference(first: RunView, second: RunView, start: int) -> dict[str, Any] | None:
    """Return the first answer that differs, in both runs."""
    difference = first_text_difference(first.run, second.run, start, MAX_TEXT_STEPS)
    if difference is None:
        return None
    table, sample = difference.tables[0], difference.tables[0].samples[difference.samples[0]]
    sides = zip((first, second), difference.tables, difference.samples, strict=True)
    return {
        "stage": table.stage,
        "step": table.step + 1,
        "sample": sample.sample_id,
        "task": sample.task_id,
        "token": difference.token,
        "sides": [_side(*each, difference.token) for each in sides],
    }


def _side(run_view: RunView, table: StepTable, index: int, token: int) -> dict[str, Any]:
    """Return the text around a token of a sample, with an empty token if the sample ends before it."""
    low, high = max(0, token - TOKENS_BEFORE), token + 1 + TOKENS_AFTER
    ids = table.streams["token_ids"][table.part(index)].tolist()
    texts = [shorten_and_count(text) for text in run_view.token_texts(ids[low:high])]
    offset = token - low
    return {
        "cut": low > 0,
        "before": "".join(texts[:offset]),
        "token": "".join(texts[offset : offset + 1]),
        "after": "".join(texts[offset + 1 :]),
        "more": max(0, len(ids) - high),
        "reward": table.samples[index].reward,
    }


def _delta(delta: Delta) -> dict[str, str]:
    return {"key": delta.key, "first": repr(delta.first), "second": repr(delta.second)}
