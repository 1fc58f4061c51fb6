"""What a run drew, prompt by prompt and sample by sample, of all its updates."""

import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truing.board.opened import Opened
from truing.errors import RecordError
from truing.record.sample_columns import Known

PATIENCE = 1.0
"""Seconds that samples are read for. What is left is told, and read by the next questions."""

PAGE = 100
"""Lines of a list that are told at once."""

ORDERS = {
    "tasks": ("attempts", "pass_rate", "reward", "spread", "last", "task"),
    "samples": ("update", "reward", "turn_tokens"),
}
"""What lists are sorted by."""

RIGHT = 1.0
"""A reward from which an attempt counts as passed, as in group/all_right_share."""


def tasks(opened: Opened, order: str, backwards: bool, start: int, text: str) -> dict[str, Any]:
    """Every prompt that was drawn: attempts, pass rate, mean reward and its spread, last update."""
    _check(order, "tasks")
    known = opened.samples(PATIENCE)
    drawn = known.table.filter(pc.is_valid(pc.if_else(pc.is_nan(known.table["reward"]), None, 1)))
    drawn = drawn.select(["task_id", "family", "reward", "update"]).append_column(
        "passed", pc.cast(pc.greater_equal(drawn["reward"], RIGHT), pa.float64())
    )
    found = pa.TableGroupBy(drawn.unify_dictionaries(), ["task_id", "family"]).aggregate(
        [("reward", "count"), ("passed", "mean"), ("reward", "mean"), ("reward", "stddev"), ("update", "max")]
    )
    names = {"task_id": "task", "family": "family", "reward_count": "attempts", "passed_mean": "pass_rate"}
    names |= {"reward_mean": "reward", "reward_stddev": "spread", "update_max": "last"}
    found = found.rename_columns([names[name] for name in found.column_names])
    if text:
        found = found.filter(pc.match_substring(pc.cast(found["task"], pa.string()), text, ignore_case=True))
    listed = _page(found, order, backwards, start)
    return {
        **_told(known, len(drawn)),
        "tasks": _described(opened, listed.to_pylist()),
        "count": found.num_rows,
        "rates": _histogram(found["pass_rate"]),
    }


def samples(
    opened: Opened, wanted: Mapping[str, str], order: str, backwards: bool, start: int
) -> dict[str, Any]:
    """Samples of all updates that are as they are wanted: by reward, group, task, finish reason, finding."""
    _check(order, "samples")
    known = opened.samples(PATIENCE)
    table = known.table
    for column, name in (
        ("task_id", "task"),
        ("group_id", "group"),
        ("finish_reason", "finish"),
        ("status", "status"),
    ):
        if value := wanted.get(name):
            table = table.filter(pc.equal(pc.cast(table[column], pa.string()), value))
    if least := wanted.get("least"):
        table = table.filter(pc.greater_equal(table["reward"], _number(least)))
    if most := wanted.get("most"):
        table = table.filter(pc.less_equal(table["reward"], _number(most)))
    if wanted.get("found"):
        table = table.filter(pc.is_in(table["sample_id"], pa.array(sorted(opened.named()), pa.string())))
    listed = _page(table, order, backwards, start).to_pylist()
    return {
        **_told(known, table.num_rows),
        "samples": [each | _place(opened, each["update"]) for each in listed],
        "count": table.num_rows,
        "finishes": sorted(set(known.table["finish_reason"].unique().to_pylist())),
        "statuses": sorted(set(known.table["status"].unique().to_pylist())),
    }


def _described(opened: Opened, listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each prompt with where it was drawn last, and what it says, as far as there is time to read it."""
    until = time.monotonic() + PATIENCE
    for each in listed:
        each |= _place(opened, each["last"])
        each["prompt"] = opened.prompt(each["task"], each["last"], read=time.monotonic() < until)
    return listed


def _page(table: pa.Table, order: str, backwards: bool, start: int) -> pa.Table:
    """A page of a table in an order; numbers that are not known come last."""
    keys = [(order, "descending" if backwards else "ascending")]
    return table.take(pc.sort_indices(table, keys)[start : start + PAGE])


def _told(known: Known, rows: int) -> dict[str, Any]:
    unreadable = list(known.unreadable.values())
    return {
        "rows": rows,
        "waiting": known.waiting,
        "unreadable": unreadable[:5],
        "unreadable_count": len(unreadable),
    }


def _place(opened: Opened, row: int) -> dict[str, Any]:
    """The update of a row of the columns, as a person counts."""
    place = opened.run.columns.places[row]
    return {"stage": place.stage, "update": place.step + 1}


def _histogram(rates: pa.ChunkedArray) -> list[int]:
    """How many prompts have a pass rate of 0, of each tenth in between, and of 1."""
    rates_N = rates.to_numpy()
    inner = rates_N[(rates_N > 0) & (rates_N < 1)]
    counts = np.histogram(inner, bins=10, range=(0, 1))[0].tolist()
    return [int((rates_N == 0).sum()), *counts, int((rates_N == 1).sum())]


def _check(order: str, kind: str) -> None:
    if order not in ORDERS[kind]:
        raise RecordError(f"{kind} cannot be sorted by {order[:50]}", expected=", ".join(ORDERS[kind]))


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise RecordError("a bound on the reward is no number", got=text[:50]) from error
    if math.isnan(value):
        raise RecordError("a bound on the reward is no number", got=text[:50])
    return value
