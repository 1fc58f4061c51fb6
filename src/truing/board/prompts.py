"""What a run drew, prompt by prompt and sample by sample, of all its updates."""

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truing.board.opened import Opened
from truing.board.questions import Query, number, whole
from truing.errors import QuestionError
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


SAMPLES = {"task": "task_id", "group": "group_id", "finish": "finish_reason", "status": "status"}
"""What samples are chosen by, and the column that says it."""


def tasks(opened: Opened, query: Query) -> dict[str, Any]:
    """Every prompt that was drawn: attempts, pass rate, mean reward and its spread, last update."""
    order, start = _order(query, "tasks"), whole(query, "start", 0)
    known = opened.samples(PATIENCE)
    attempts = _attempts(known.table)
    found = _by_task(attempts)
    if text := query.get("text"):
        found = found.filter(pc.match_substring(found["task"], text, ignore_case=True))
    listed = _page(found, order, start)
    return {
        **_told(known, attempts.num_rows),
        "tasks": _described(opened, listed.to_pylist()),
        "count": found.num_rows,
        "rates": _histogram(found["pass_rate"]),
    }


def samples(opened: Opened, query: Query) -> dict[str, Any]:
    """Samples of all updates that are as they are wanted: by reward, group, task, finish reason, finding."""
    order, start = _order(query, "samples"), whole(query, "start", 0)
    least, most = number(query, "least"), number(query, "most")
    known = opened.samples(PATIENCE)
    table = known.table
    for name, column in SAMPLES.items():
        if value := query.get(name):
            table = table.filter(pc.equal(pc.cast(table[column], pa.string()), value))
    if least is not None:
        table = table.filter(pc.greater_equal(table["reward"], least))
    if most is not None:
        table = table.filter(pc.less_equal(table["reward"], most))
    if query.get("found"):
        table = table.filter(pc.is_in(table["sample_id"], pa.array(sorted(opened.named()), pa.string())))
    listed = _page(table, order, start).to_pylist()
    return {
        **_told(known, table.num_rows),
        "samples": [each | _place(opened, each["update"]) for each in listed],
        "count": table.num_rows,
        "finishes": sorted(set(known.table["finish_reason"].unique().to_pylist())),
        "statuses": sorted(set(known.table["status"].unique().to_pylist())),
    }


def _attempts(table: pa.Table) -> pa.Table:
    """One row for each attempt that has a reward: one whose past was written anew has several samples."""
    names, updates = table["rollout_id"].combine_chunks(), table["update"].to_numpy()
    first = np.ones(len(table), bool)
    first[1:] = (updates[1:] != updates[:-1]) | pc.not_equal(names[1:], names[:-1]).to_numpy(False)
    return table.filter(pc.and_(pa.array(first), pc.invert(pc.is_nan(table["reward"]))))


def _by_task(attempts: pa.Table) -> pa.Table:
    """Attempts prompt by prompt; of one attempt no spread is known."""
    passed = pc.cast(pc.greater_equal(attempts["reward"], RIGHT), pa.float64())
    drawn = attempts.select(["task_id", "family", "reward", "update"]).append_column("passed", passed)
    deviation = ("reward", "stddev", pc.VarianceOptions(ddof=1))
    found = pa.TableGroupBy(drawn.unify_dictionaries(), ["task_id", "family"]).aggregate(
        [("reward", "count"), ("passed", "mean"), ("reward", "mean"), deviation, ("update", "max")]
    )
    columns = {"task": pc.cast(found["task_id"], pa.string()), "family": found["family"]}
    columns |= {"attempts": found["reward_count"], "pass_rate": found["passed_mean"]}
    columns |= {"reward": found["reward_mean"], "spread": found["reward_stddev"]}
    return pa.table(columns | {"last": found["update_max"]})


def _described(opened: Opened, listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each prompt with where it was drawn last, and what it says, as far as there is time to read it."""
    until = time.monotonic() + PATIENCE
    for each in listed:
        each |= _place(opened, each["last"])
        each["prompt"] = opened.prompt(each["task"], each["last"], read=time.monotonic() < until)
    return listed


def _page(table: pa.Table, order: tuple[str, str], start: int) -> pa.Table:
    """A page of a table in an order; numbers that are not known come last."""
    return table.take(pc.sort_indices(table, [order])[start : start + PAGE])


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


def _order(query: Query, kind: str) -> tuple[str, str]:
    """What a list is sorted by, and which way."""
    order = query.get("order") or ORDERS[kind][0]
    if order not in ORDERS[kind]:
        raise QuestionError(f"{kind} cannot be sorted by {order[:50]}", expected=", ".join(ORDERS[kind]))
    return order, "descending" if query.get("backwards") else "ascending"
