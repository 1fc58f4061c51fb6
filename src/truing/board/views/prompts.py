"""What a run drew, prompt by prompt and sample by sample, of all its updates."""

import time
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from truing.board.arguments import Query, integer, number
from truing.board.data.run_view import RunView
from truing.board.data.texts import PROMPT, shorten
from truing.errors import BadRequestError
from truing.record.sample_columns import SampleSnapshot

READ_SECONDS = 1.0
"""Seconds that samples are read for. What is left is told, and read by the next questions."""

PAGE_ROWS = 100
"""Lines of a list that are told at once."""

ORDERS = {
    "tasks": ("attempts", "pass_rate", "reward", "spread", "last", "task"),
    "samples": ("update", "reward", "turn_tokens"),
}
"""What lists are sorted by."""

PASS_REWARD = 1.0
"""A reward from which an attempt counts as passed, as in group/all_right_share."""


PASS_RATE_BINS = ("never", *(f"{i}-{i + 10}" for i in range(0, 100, 10)), "always")
"""Pass rates as they are counted, in percent: each tenth without its end."""

ALL_STAGES = "all"
"""What is asked for in place of a stage: the samples of every one."""

SAMPLE_FILTERS = {"task": "task_id", "group": "group_id", "finish": "finish_reason", "status": "status"}
"""What samples are chosen by, and the column that says it."""


def tasks(opened: RunView, query: Query) -> dict[str, Any]:
    """Every prompt that was drawn: attempts, pass rate, mean reward and its spread, last update."""
    order, start, passed = _order(query, "tasks"), integer(query, "start", 0), _wanted_bin(query)
    known = opened.read_samples(READ_SECONDS)
    until = time.monotonic() + READ_SECONDS
    attempts = _attempts(known.table)
    every = _by_task(attempts)
    found, unread, failed = every, set[str](), dict[int, str]()
    if text := query.get("text"):
        found, unread, failed = _search(opened, every, text, until)
    bars = _bin_indices(found["pass_rate"])
    wanted = found if passed is None else found.filter(pa.array(bars == passed))
    listed = _page(wanted, order, start).to_pylist()
    of_listed = {each["task"]: each["last"] for each in listed}
    failed |= opened.sample_texts.read_prompts(opened.run.columns.segment_refs, of_listed, until)
    unread |= _unread_tasks(opened, of_listed, failed)
    return {
        **_reading_state(known, attempts.num_rows, failed),
        "tasks": [
            each | _prompt_json(opened, each["task"]) | _update_json(opened, each["last"]) for each in listed
        ],
        "count": wanted.num_rows,
        "every": every.num_rows,
        "unread": len(unread),
        "bars": PASS_RATE_BINS,
        "rates": np.bincount(bars, minlength=len(PASS_RATE_BINS)).tolist(),
    }


def samples(opened: RunView, query: Query) -> dict[str, Any]:
    """Samples as they are wanted: by stage, reward, group, task, finish reason, finding."""
    order, start = _order(query, "samples"), integer(query, "start", 0)
    least, most = number(query, "least"), number(query, "most")
    known = opened.read_samples(READ_SECONDS)
    until = time.monotonic() + READ_SECONDS
    stage = query.get("stage") or _last_rewarded_stage(known.table)
    table = known.table if stage == ALL_STAGES else _of_stage(opened, known.table, stage)
    for name, column in SAMPLE_FILTERS.items():
        if value := query.get(name):
            table = table.filter(pc.equal(pc.cast(table[column], pa.string()), value))
    if least is not None:
        table = table.filter(pc.greater_equal(table["reward"], least))
    if most is not None:
        table = table.filter(pc.less_equal(table["reward"], most))
    if query.get("found"):
        table = table.filter(
            pc.is_in(table["sample_id"], pa.array(sorted(opened.samples_with_findings()), pa.string()))
        )
    listed, unread, failed = _with_texts(opened, _page(table, order, start).to_pylist(), until)
    return {
        **_reading_state(known, table.num_rows, failed),
        "samples": listed,
        "count": table.num_rows,
        "unread": unread,
        "stage": stage,
        "stages": list(dict.fromkeys(name for name, _, _ in opened.run.columns.stages)),
        "finishes": sorted(set(known.table["finish_reason"].unique().to_pylist())),
        "statuses": sorted(set(known.table["status"].unique().to_pylist())),
    }


def _of_stage(opened: RunView, table: pa.Table, stage: str) -> pa.Table:
    """The samples of a stage; none is copied."""
    updates = table["update"].to_numpy()
    spans = [span for name, *span in opened.run.columns.stages if name == stage]
    parts = [table.slice(low, high - low) for low, high in (np.searchsorted(updates, span) for span in spans)]
    return pa.concat_tables([table.slice(0, 0), *parts])


def _last_rewarded_stage(table: pa.Table) -> str:
    """The last stage whose samples have rewards; where none has, all."""
    known = np.flatnonzero(~np.isnan(table["reward"].to_numpy()))
    return table["stage"][int(known[-1])].as_py() if len(known) else ALL_STAGES


def _with_texts(
    opened: RunView, listed: list[dict[str, Any]], until: float
) -> tuple[list[dict[str, Any]], int, dict[int, str]]:
    """Samples with their words; how many there was no time for; updates that cannot be read."""
    places, words = opened.run.columns.segment_refs, opened.sample_texts
    failed = words.read_answers(places, [(each["update"], each["sample_id"]) for each in listed], until)
    tasks = {each["task_id"]: each["update"] for each in listed}
    failed |= words.read_prompts(places, tasks, until)
    answers = [words.answer(places[each["update"]], each["sample_id"]) for each in listed]
    unread = sum(
        text is None and each["update"] not in failed for each, text in zip(listed, answers, strict=True)
    )
    shown = [
        each | _update_json(opened, each["update"]) | {"answer": text} | _prompt_json(opened, each["task_id"])
        for each, text in zip(listed, answers, strict=True)
    ]
    return shown, unread + len(_unread_tasks(opened, tasks, failed)), failed


def _search(
    opened: RunView, every: pa.Table, text: str, until: float
) -> tuple[pa.Table, set[str], dict[int, str]]:
    """Prompts that have the text in their name or words; those that were not read; updates that cannot be."""
    sought, names = text.lower(), every["task"].to_pylist()
    named = [sought in name.lower() for name in names]
    rows = zip(names, every["last"].to_pylist(), named, strict=True)
    others = {name: row for name, row, is_named in rows if not is_named}
    failed = opened.sample_texts.read_prompts(opened.run.columns.segment_refs, others, until)
    asked = (opened.sample_texts.prompt(name) or "" for name in names)
    found = [is_named or sought in ask.lower() for is_named, ask in zip(named, asked, strict=True)]
    return every.filter(pa.array(found, pa.bool_())), _unread_tasks(opened, others, failed), failed


def _unread_tasks(opened: RunView, wanted: Mapping[str, int], failed: Collection[int]) -> set[str]:
    """Tasks of which nobody knows yet what they ask."""
    words = opened.sample_texts
    return {task for task, row in wanted.items() if row not in failed and words.prompt(task) is None}


def _prompt_json(opened: RunView, task: str) -> dict[str, Any]:
    text = opened.sample_texts.prompt(task)
    return {"prompt": text if text is None else shorten(text, PROMPT)}


def _attempts(table: pa.Table) -> pa.Table:
    """One row for each attempt that has a reward: one whose past was written anew has several samples."""
    names, updates = table["rollout_id"].combine_chunks(), table["update"].to_numpy()
    first = np.ones(len(table), bool)
    first[1:] = (updates[1:] != updates[:-1]) | pc.not_equal(names[1:], names[:-1]).to_numpy(False)
    return table.filter(pc.and_(pa.array(first), pc.invert(pc.is_nan(table["reward"]))))


def _by_task(attempts: pa.Table) -> pa.Table:
    """Attempts prompt by prompt; of one attempt no spread is known."""
    passed = pc.cast(pc.greater_equal(attempts["reward"], PASS_REWARD), pa.float64())
    drawn = attempts.select(["task_id", "family", "reward", "update"]).append_column("passed", passed)
    deviation = ("reward", "stddev", pc.VarianceOptions(ddof=1))
    found = pa.TableGroupBy(drawn.unify_dictionaries(), ["task_id", "family"]).aggregate(
        [("reward", "count"), ("passed", "mean"), ("reward", "mean"), deviation, ("update", "max")]
    )
    columns = {"task": pc.cast(found["task_id"], pa.string()), "family": found["family"]}
    columns |= {"attempts": found["reward_count"], "pass_rate": found["passed_mean"]}
    columns |= {"reward": found["reward_mean"], "spread": found["reward_stddev"]}
    return pa.table(columns | {"last": found["update_max"]})


def _page(table: pa.Table, order: tuple[str, str], start: int) -> pa.Table:
    """A page of a table in an order; numbers that are not known come last."""
    return table.take(pc.sort_indices(table, [order])[start : start + PAGE_ROWS])


def _reading_state(known: SampleSnapshot, rows: int, failed: Mapping[int, str]) -> dict[str, Any]:
    unreadable = list({**known.unreadable, **failed}.values())
    return {
        "rows": rows,
        "waiting": known.unread,
        "unreadable": unreadable[:5],
        "unreadable_count": len(unreadable),
    }


def _update_json(opened: RunView, row: int) -> dict[str, Any]:
    """The update of a row of the columns, as a person counts."""
    place = opened.run.columns.segment_refs[row]
    return {"stage": place.stage, "update": place.step + 1}


def _bin_indices(rates: pa.ChunkedArray) -> NDArray[np.int64]:
    """Which of ``BARS`` each pass rate belongs to, [n]."""
    rates_N = rates.to_numpy()
    return np.where(rates_N <= 0, 0, 1 + np.floor(10 * rates_N)).astype(np.int64)


def _wanted_bin(query: Query) -> int | None:
    """The bar that is wanted; None where all are."""
    name = query.get("passed")
    if name and name not in PASS_RATE_BINS:
        raise BadRequestError(f"there is no pass rate {name[:50]}", expected=", ".join(PASS_RATE_BINS))
    return PASS_RATE_BINS.index(name) if name else None


def _order(query: Query, kind: str) -> tuple[str, str]:
    """What a list is sorted by, and which way."""
    order = query.get("order") or ORDERS[kind][0]
    if order not in ORDERS[kind]:
        raise BadRequestError(f"{kind} cannot be sorted by {order[:50]}", expected=", ".join(ORDERS[kind]))
    return order, "descending" if query.get("backwards") else "ascending"
