"""Rows of many steps at a time for ``dev/measure/big_run.py``: facts of a trained row, random text."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truing.record.schema import LIST_COLUMNS, SCHEMA, TURN
from truing.types.token import Excluded, Origin

ANSWER = (4, 36)  # tokens of an answer: at least, and fewer than


def streams(rng: np.random.Generator, like: pa.Table, answer: np.ndarray, cut: np.ndarray) -> dict[str, Any]:
    """Return each token stream by name; a row's answer has ``answer`` letters after one prompt."""
    prompt = like["prompt_length"][0].as_py()
    starts = np.concatenate([[0], np.cumsum(answer + prompt)])
    within = np.arange(starts[-1]) - np.repeat(starts[:-1], answer + prompt)
    in_answer, at = within >= prompt, np.minimum(within, prompt - 1)
    ids = np.where(
        in_answer, rng.integers(ord("a"), ord("z") + 1, len(in_answer)), _values(like, "token_ids")[at]
    )
    ids[starts[1:][~cut] - 1] = json.loads(like["sampling_params"][0].as_py())["stop_ids"][0]
    logprob = np.where(
        in_answer, -rng.integers(0, 4096, len(in_answer)) / np.float32(1024), np.float32("nan")
    )
    return {
        "token_ids": ids,
        "origin": np.where(in_answer, Origin.SAMPLED, _values(like, "origin")[at]),
        "excluded": np.where(in_answer, Excluded.NO, Excluded.NOT_SAMPLED),
        **dict.fromkeys(("policy_mask", "kl_mask", "value_mask"), in_answer),
        **dict.fromkeys(("structure", "supervised_mask"), np.zeros_like(in_answer)),
        **dict.fromkeys(("sampler_logprob", "old_logprob", "new_logprob"), logprob),
        **dict.fromkeys(("entropy", "raw_entropy", "token_gradient", "advantage"), logprob / -2),
        **dict.fromkeys(("ref_logprob", "value", "returns"), np.full(len(in_answer), np.nan)),
        "starts": starts,
    }


def rows(rng: np.random.Generator, like: pa.Table, first: int, reward: np.ndarray) -> pa.Table:
    """Return the rows of the steps from ``first`` on; rewards are [steps, samples]."""
    n, (steps, samples), prompt = reward.size, reward.shape, like["prompt_length"][0].as_py()
    step = np.repeat(np.arange(first, first + steps), samples)
    answer = rng.integers(*ANSWER, n)
    cut = answer == ANSWER[1] - 1
    columns = streams(rng, like, answer, cut)
    starts, letters = (
        columns.pop("starts"),
        columns["token_ids"][columns["policy_mask"] & (columns["token_ids"] < 256)],
    )
    ends = pa.array(np.concatenate([[0], np.cumsum(answer - ~cut)]), pa.int32()).buffers()[1]
    text = pa.Array.from_buffers(pa.string(), n, [None, ends, pa.py_buffer(letters.astype(np.uint8))])
    group = _joined("0/grpo/", step, "/0")
    name = _joined(group, "/", np.tile(np.arange(samples), steps))
    messages, (before, after) = like["messages"][0].as_py(), ('{"role": "assistant", "content": "', '"}]')
    turn = {"start": np.full(n, prompt), "end": prompt + answer, "sampler_version": step}
    turn |= {"finish_reason": np.where(cut, "length", "stop"), "weight_digest": _joined("digest-", step)}
    turn |= {"reward": np.full(n, np.nan), "call": np.zeros(n, np.int64)}
    turns = pa.StructArray.from_arrays(
        [pa.array(turn[each.name], each.type) for each in TURN], fields=list(TURN)
    )
    arrays = {
        **{
            key: pa.ListArray.from_arrays(
                pa.array(starts, pa.int32()), pa.array(values, LIST_COLUMNS[key][0])
            )
            for key, values in columns.items()
        },
        **dict.fromkeys(("support_ids", "support_splits")),
        **{"step": step, "reward": reward.ravel(), "truncated": cut, "text": text},
        **{"sample_id": name, "rollout_id": name, "group_id": group},
        "task_id": _joined("first-3-0-train-", step % 200),
        "family": _joined("arithmetic/first-", step % 5),
        "status": np.where(cut, "truncated", "done"),
        "ended_by": np.where(cut, "length", "environment"),
        "messages": _joined(messages[: messages.index(before)] + before, text, after),
        "turns": pa.ListArray.from_arrays(pa.array(np.arange(n + 1), pa.int32()), turns),
    }
    return pa.table({each.name: _column(arrays, like, each, n) for each in SCHEMA}, SCHEMA)


def _values(like: pa.Table, name: str) -> np.ndarray:
    return like[name][0].values.to_numpy(zero_copy_only=False)


def _joined(*parts: str | np.ndarray | pa.Array) -> pa.Array:
    """Return texts joined row by row."""
    columns = [each if isinstance(each, str) else pa.array(each).cast(pa.string()) for each in parts]
    return pc.binary_join_element_wise(*columns, "")


def _column(arrays: Mapping[str, Any], like: pa.Table, field: pa.Field, n: int) -> pa.Array:
    """Return a generated column, or the value of the first trained row, repeated."""
    if field.name not in arrays:
        return pa.repeat(like[field.name][0], n)
    values = arrays[field.name]
    return pa.nulls(n, field.type) if values is None else pa.array(values, field.type)
