"""prime-rl's run directory: episodes that trained, and what the trainer exported of their tokens.

``rollouts/step_N/train/effective/traces.jsonl`` is written by default (``prime_rl/monitors/file.py``),
``token_exports/step_N/rank_R.jsonl`` with ``enable_token_export`` (``prime_rl/trainer/rl/token_export.py``).
An export has no id of its rollout, so the two are joined by token ids; a row that the trainer cut joins by
its beginning.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel
from torch import Tensor

from truing.doctor.traces.dumps.reader import DumpStep, Reader, json_objects, step_of_rows, validated
from truing.doctor.traces.dumps.verifiers_traces import (
    Episode,
    Ids,
    Numbers,
    Row,
    rows_of,
    tensor_of,
    unread,
)
from truing.errors import RecordError
from truing.types.token import Origin
from truing.types.values import Count, Flag

TRACES = "train/effective/traces.jsonl"

STEP = re.compile(r"step_([1-9][0-9]{0,8})")


class _Record(BaseModel):
    """A line of an export: a sequence of a micro-batch."""

    schema_version: Literal[1]
    step: Count
    rank: Count
    micro_step: Count
    token_ids: Ids
    loss_mask: list[Flag]
    advantages: Numbers
    inference_logprobs: Numbers
    trainer_logprobs: Numbers
    entropy: Numbers
    rl_weights: Numbers | None = None


OF_TOKENS = (*("loss_mask", "advantages", "inference_logprobs", "trainer_logprobs", "entropy", "rl_weights"),)


def found(path: Path) -> Mapping[int, Sequence[Path]]:
    """Return traces and exports by step, of a run directory, its folder of rollouts, or one of its files."""
    if path.is_file():
        is_far_down = path.name == Path(TRACES).name and len(path.parents) > 3
        around = found(path.parents[3]) if is_far_down else {}
        return {step: paths for step, paths in around.items() if paths[0] == path}
    rollouts = path / "rollouts" if (path / "rollouts").is_dir() else path
    files = {}
    for folder in rollouts.glob("step_*"):
        traces, exports = folder / TRACES, rollouts.parent / "token_exports" / folder.name
        if (match := STEP.fullmatch(folder.name)) and traces.is_file():
            files[int(match[1])] = [traces, *sorted(exports.glob("rank_*.jsonl"))]
    return files


def read(step: int, paths: Sequence[Path]) -> DumpStep:
    """Return a step; rows that are in no export were not trained."""
    traces, *exports = paths
    lines = json_objects(traces)
    rows = [row for where, line in lines for row in rows_of(validated(Episode, line, where), where)]
    left = unread([line for _, line in lines])
    passes = dict[int, _Record]()
    if exports:
        given = [each for path in exports for each in json_objects(path)]
        passes, alone = _joined(rows, [_record(line, where, step) for where, line in given])
        left += _unread_columns([line for _, line in given])
        left += [f"{alone} sequences of token_exports with tokens of no rollout"] if alone else []
    streams = [
        row.streams | (_trained(row.streams, passes.get(i)) if exports else {}) for i, row in enumerate(rows)
    ]
    parts = dict.fromkeys(name for row in rows for name in row.trace.rewards)
    file = step_of_rows(
        traces,
        step,
        "sampler" if exports else "roles",
        streams,
        reward=[row.reward for row in rows],
        more=_passes(rows, passes),
        sample_id=[row.sample_id for row in rows],
        episode_id=[row.trace.id for row in rows],
        group_id=[row.episode.group.id if row.episode.group else "" for row in rows],
        finish_reason=[row.finish_reason for row in rows],
        version=[row.episode.version for row in rows],
        reward_parts={name: [_score(row, name) for row in rows] for name in parts},
    )
    return DumpStep([file], left)


def _score(row: Row, name: str) -> float:
    reward = row.trace.rewards.get(name)
    return torch.nan if reward is None else reward.score


def _record(line: Mapping[str, Any], where: str, step: int) -> _Record:
    """Return a line of an export; its columns without any number are absent."""
    weights = line.get("rl_weights")
    absent = isinstance(weights, list) and all(each is None for each in weights)
    record = validated(_Record, {**line, "rl_weights": None} if absent else line, where)
    if record.step != step:
        raise RecordError(f"{where} is of another step", got=record.step, expected=step)
    for name in OF_TOKENS:
        column = getattr(record, name)
        if column is not None and len(column) != len(record.token_ids):
            raise RecordError(
                f"{where}: {name} has another length", got=len(column), expected=len(record.token_ids)
            )
    return record


def _unread_columns(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns of exports that have a number, and nothing is made of them."""
    columns = {key for line in lines for key, x in line.items() if isinstance(x, list) and any(x)}
    return sorted(columns - set(_Record.model_fields))


def _joined(rows: Sequence[Row], records: Sequence[_Record]) -> tuple[dict[int, _Record], int]:
    """Return the record of each row by its number, and how many records have no row."""
    by_ids = defaultdict[tuple[int, ...], list[int]](list)
    for number, row in enumerate(rows):
        by_ids[tuple(row.streams["token_ids"].tolist())].append(number)
    found, alone = dict[int, _Record](), 0
    for record in records:
        ids = tuple(record.token_ids)
        whole = by_ids.get(ids)
        numbers = whole or next(
            (each for key, each in by_ids.items() if each and key[: len(ids)] == ids), None
        )
        if numbers:
            found[numbers.pop(0)] = record
        else:
            alone += 1
    return found, alone


def _trained(streams: Mapping[str, Tensor], record: _Record | None) -> dict[str, Tensor]:
    """Return what the trainer had of a row; nothing of it is trained without a record."""
    length = len(streams["token_ids"])
    if record is None:
        return {"loss_mask": torch.zeros(length, dtype=torch.bool)}
    mask = torch.tensor(record.loss_mask)
    if record.rl_weights is not None:
        mask &= tensor_of(record.rl_weights) != 0
    unsampled = streams["origin"] != Origin.SAMPLED
    sampler = _to_length(tensor_of(record.inference_logprobs), length)
    return {
        "loss_mask": torch.cat([mask, torch.zeros(length - len(mask), dtype=torch.bool)]),
        "advantage": _to_length(tensor_of(record.advantages), length),
        "sampler_logprob": sampler.masked_fill(unsampled & (sampler == 0), torch.nan),
    }


def _passes(rows: Sequence[Row], records: Mapping[int, _Record]) -> dict[str, Tensor]:
    """Return the trainer's forward of each row that it trained."""
    if not records:
        return {}
    order = sorted(records)
    places = {
        "sample": order,
        "optimizer_step": [0] * len(order),
        "micro_batch": [records[i].micro_step for i in order],
        "rank": [records[i].rank for i in order],
    }
    passes = {f"pass.{name}": torch.tensor(values, dtype=torch.int32) for name, values in places.items()}
    for name, ours in {"trainer_logprobs": "new_logprob", "entropy": "entropy"}.items():
        parts = []
        for i in order:
            values = tensor_of(getattr(records[i], name))
            values[:1] = torch.nan  # of the first token there is none: the trainer fills in a constant
            parts.append(_to_length(values, len(rows[i].streams["token_ids"])))
        passes[f"pass.{ours}"] = torch.cat(parts)
    return passes


def _to_length(values: Tensor, length: int) -> Tensor:
    """Return values with NaN for the tokens that the trainer cut off."""
    return torch.cat([values, torch.full((length - len(values),), torch.nan)])


READER = Reader("prime-rl", found, read)
