"""Lists of prompts and samples over all steps of a run."""

import time
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from truing.board.arguments import Query, integer, number
from truing.board.data.run_view import RunView
from truing.board.data.texts import PROMPT_CHARS
from truing.errors import BadRequestError
from truing.record.sample_columns import SampleSnapshot
from truing.utils.format import shorten

READ_SECONDS = 1.0
"""Seconds of reading per request. The next requests read the rest."""

PAGE_ROWS = 100
"""Rows of a page of a list."""

ORDERS = {
    "tasks": ("rollouts", "pass_rate", "reward", "spread", "last", "task"),
    "samples": ("step_index", "reward", "turn_tokens"),
}
"""Sort keys of the lists."""

PASS_REWARD = 1.0
"""The reward from which a rollout passes, as in group/all_right_share."""


PASS_RATE_BINS = ("never", *(f"{i}-{i + 10}" for i in range(0, 100, 10)), "always")
"""Bins of pass rates in percent, each without its upper bound."""

ALL_STAGES = "all"
"""The stage filter that selects all stages."""

SAMPLE_FILTERS = {"task": "task_id", "group": "group_id", "finish": "finish_reason", "status": "status"}
"""Filters of samples and their columns."""


def tasks(run_view: RunView, query: Query) -> dict[str, Any]:
    """Return every sampled prompt: rollouts, pass rate, mean and std of the reward, last step."""
    order, start, chosen_bin = _order(query, "tasks"), integer(query, "start", 0), _wanted_bin(query)
    snapshot = run_view.read_samples(READ_SECONDS)
    deadline = time.monotonic() + READ_SECONDS
    rollouts = _rollouts(snapshot.table)
    all_tasks = _by_task(rollouts)
    matching, unread, failed = all_tasks, set[str](), dict[int, str]()
    if text := query.get("text"):
        matching, unread, failed = _search(run_view, all_tasks, text, deadline)
    bins = _bin_indices(matching["pass_rate"])
    in_bin = matching if chosen_bin is None else matching.filter(pa.array(bins == chosen_bin))
    page = _page(in_bin, order, start).to_pylist()
    row_by_task = {row["task"]: row["last"] for row in page}
    failed |= run_view.sample_texts.read_prompts(run_view.run.columns.segment_refs, row_by_task, deadline)
    unread |= _unread_tasks(run_view, row_by_task, failed)
    return {
        **_reading_state(snapshot, rollouts.num_rows, failed),
        "tasks": [
            row | _prompt_json(run_view, row["task"]) | _step_json(run_view, row["last"]) for row in page
        ],
        "count": in_bin.num_rows,
        "every": all_tasks.num_rows,
        "unread": len(unread),
        "bars": PASS_RATE_BINS,
        "rates": np.bincount(bins, minlength=len(PASS_RATE_BINS)).tolist(),
    }


def samples(run_view: RunView, query: Query) -> dict[str, Any]:
    """Return samples, filtered by stage, reward, group, task, finish reason and finding."""
    order, start = _order(query, "samples"), integer(query, "start", 0)
    min_reward, max_reward = number(query, "least"), number(query, "most")
    snapshot = run_view.read_samples(READ_SECONDS)
    deadline = time.monotonic() + READ_SECONDS
    stage = query.get("stage") or _last_rewarded_stage(snapshot.table)
    table = snapshot.table if stage == ALL_STAGES else _of_stage(run_view, snapshot.table, stage)
    for name, column in SAMPLE_FILTERS.items():
        if value := query.get(name):
            table = table.filter(pc.equal(pc.cast(table[column], pa.string()), value))
    if min_reward is not None:
        table = table.filter(pc.greater_equal(table["reward"], min_reward))
    if max_reward is not None:
        table = table.filter(pc.less_equal(table["reward"], max_reward))
    if query.get("found"):
        table = table.filter(
            pc.is_in(table["sample_id"], pa.array(sorted(run_view.samples_with_findings()), pa.string()))
        )
    page, unread, failed = _with_texts(run_view, _page(table, order, start).to_pylist(), deadline)
    return {
        **_reading_state(snapshot, table.num_rows, failed),
        "samples": page,
        "count": table.num_rows,
        "unread": unread,
        "stage": stage,
        "stages": list(dict.fromkeys(name for name, _, _ in run_view.run.columns.stages)),
        "finishes": sorted(set(snapshot.table["finish_reason"].unique().to_pylist())),
        "statuses": sorted(set(snapshot.table["status"].unique().to_pylist())),
    }


def _of_stage(run_view: RunView, table: pa.Table, stage: str) -> pa.Table:
    """Return the samples of a stage without a copy."""
    step_indices = table["step_index"].to_numpy()
    spans = [span for name, *span in run_view.run.columns.stages if name == stage]
    parts = [
        table.slice(low, high - low) for low, high in (np.searchsorted(step_indices, span) for span in spans)
    ]
    return pa.concat_tables([table.slice(0, 0), *parts])


def _last_rewarded_stage(table: pa.Table) -> str:
    """Return the last stage with rewards; "all" if none has."""
    rewarded = np.flatnonzero(~np.isnan(table["reward"].to_numpy()))
    return table["stage"][int(rewarded[-1])].as_py() if len(rewarded) else ALL_STAGES


def _with_texts(
    run_view: RunView, page: list[dict[str, Any]], deadline: float
) -> tuple[list[dict[str, Any]], int, dict[int, str]]:
    """Return samples with their texts, the number still unread, and unreadable steps."""
    refs, texts = run_view.run.columns.segment_refs, run_view.sample_texts
    failed = texts.read_answers(refs, [(row["step_index"], row["sample_id"]) for row in page], deadline)
    tasks = {row["task_id"]: row["step_index"] for row in page}
    failed |= texts.read_prompts(refs, tasks, deadline)
    answers = [texts.answer(refs[row["step_index"]], row["sample_id"]) for row in page]
    unread = sum(
        text is None and row["step_index"] not in failed for row, text in zip(page, answers, strict=True)
    )
    with_texts = [
        row
        | _step_json(run_view, row["step_index"])
        | {"answer": text}
        | _prompt_json(run_view, row["task_id"])
        for row, text in zip(page, answers, strict=True)
    ]
    return with_texts, unread + len(_unread_tasks(run_view, tasks, failed)), failed


def _search(
    run_view: RunView, all_tasks: pa.Table, text: str, deadline: float
) -> tuple[pa.Table, set[str], dict[int, str]]:
    """Return prompts with the text in name or prompt, tasks still unread, and unreadable steps."""
    needle, names = text.lower(), all_tasks["task"].to_pylist()
    name_matches = [needle in name.lower() for name in names]
    rows = zip(names, all_tasks["last"].to_pylist(), name_matches, strict=True)
    row_by_task = {name: row for name, row, matches_name in rows if not matches_name}
    failed = run_view.sample_texts.read_prompts(run_view.run.columns.segment_refs, row_by_task, deadline)
    prompt_texts = (run_view.sample_texts.prompt(name) or "" for name in names)
    matches = [
        matches_name or needle in prompt.lower()
        for matches_name, prompt in zip(name_matches, prompt_texts, strict=True)
    ]
    return (
        all_tasks.filter(pa.array(matches, pa.bool_())),
        _unread_tasks(run_view, row_by_task, failed),
        failed,
    )


def _unread_tasks(run_view: RunView, row_by_task: Mapping[str, int], failed: Collection[int]) -> set[str]:
    """Return the tasks whose prompts are not read yet."""
    texts = run_view.sample_texts
    return {task for task, row in row_by_task.items() if row not in failed and texts.prompt(task) is None}


def _prompt_json(run_view: RunView, task: str) -> dict[str, Any]:
    text = run_view.sample_texts.prompt(task)
    return {"prompt": text if text is None else shorten(text, PROMPT_CHARS)}


def _rollouts(table: pa.Table) -> pa.Table:
    """Return one row per rollout with a reward: a rollout with a rewritten history has several samples."""
    names, step_indices = table["rollout_id"].combine_chunks(), table["step_index"].to_numpy()
    first = np.ones(len(table), bool)
    first[1:] = (step_indices[1:] != step_indices[:-1]) | pc.not_equal(names[1:], names[:-1]).to_numpy(False)
    return table.filter(pc.and_(pa.array(first), pc.invert(pc.is_nan(table["reward"]))))


def _by_task(rollouts: pa.Table) -> pa.Table:
    """Return rollouts grouped by prompt; one rollout has no std."""
    passes = pc.cast(pc.greater_equal(rollouts["reward"], PASS_REWARD), pa.float64())
    sampled = rollouts.select(["task_id", "family", "reward", "step_index"]).append_column("passed", passes)
    deviation = ("reward", "stddev", pc.VarianceOptions(ddof=1))
    grouped = pa.TableGroupBy(sampled.unify_dictionaries(), ["task_id", "family"]).aggregate(
        [("reward", "count"), ("passed", "mean"), ("reward", "mean"), deviation, ("step_index", "max")]
    )
    columns = {"task": pc.cast(grouped["task_id"], pa.string()), "family": grouped["family"]}
    columns |= {"rollouts": grouped["reward_count"], "pass_rate": grouped["passed_mean"]}
    columns |= {"reward": grouped["reward_mean"], "spread": grouped["reward_stddev"]}
    return pa.table(columns | {"last": grouped["step_index_max"]})


def _page(table: pa.Table, order: tuple[str, str], start: int) -> pa.Table:
    """Return a page of a sorted table; missing values come last."""
    return table.take(pc.sort_indices(table, [order])[start : start + PAGE_ROWS])


def _reading_state(snapshot: SampleSnapshot, rows: int, failed: Mapping[int, str]) -> dict[str, Any]:
    unreadable = list({**snapshot.unreadable, **failed}.values())
    return {
        "rows": rows,
        "waiting": snapshot.unread,
        "unreadable": unreadable[:5],
        "unreadable_count": len(unreadable),
    }


def _step_json(run_view: RunView, row: int) -> dict[str, Any]:
    """Return the step of a row, counted from 1."""
    ref = run_view.run.columns.segment_refs[row]
    return {"stage": ref.stage, "step": ref.step + 1}


def _bin_indices(rates: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the bin of each pass rate, [n]."""
    rates_N = rates.to_numpy()
    return np.where(rates_N <= 0, 0, 1 + np.floor(10 * rates_N)).astype(np.int64)


def _wanted_bin(query: Query) -> int | None:
    """Return the chosen bin; None for all."""
    name = query.get("passed")
    if name and name not in PASS_RATE_BINS:
        raise BadRequestError(f"there is no pass rate {name[:50]}", expected=", ".join(PASS_RATE_BINS))
    return PASS_RATE_BINS.index(name) if name else None


def _order(query: Query, kind: str) -> tuple[str, str]:
    """Return sort key and direction of a list."""
    order = query.get("order") or ORDERS[kind][0]
    if order not in ORDERS[kind]:
        raise BadRequestError(f"{kind} cannot be sorted by {order[:50]}", expected=", ".join(ORDERS[kind]))
    return order, "descending" if query.get("backwards") else "ascending"
