"""The files of slime's and miles' ``--save-debug-train-data``, or of the folder of ``--dump-details``.

slime writes a file for each step with the rows of all ranks (``slime/observability/train_data_utils.py``,
format_version 2), miles one for each step and rank (``miles/utils/train_dump_utils.py``). They are pickles:
torch's restricted reader takes tensors, numbers, texts, lists and mappings, and refuses any other class.
"""

import zipfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Strict
from torch import Tensor

from truing.doctor.traces.dumps.reader import (
    DumpStep,
    Reader,
    origin_of_sampled,
    prompt_group,
    step_of_rows,
    validated,
)
from truing.doctor.traces.dumps.torch_files import begin_of, load
from truing.doctor.traces.step_file import StepFile
from truing.errors import RecordError
from truing.types.values import Count

BEGINS = {"slime": ["format_version", "rollout_id"], "miles": ["rollout_id", "rank", "rollout_data"]}
"""The first keys of a file."""

STREAMS = {
    "rollout_log_probs": "sampler_logprob",
    "log_probs": "old_logprob",
    "ref_log_probs": "ref_logprob",
    "advantages": "advantage",
    "values": "value",
    "returns": "returns",
}
"""Streams over the response of a row. Without a critic, returns are copies of the advantages."""

LAYOUT = ("rollout_position", "total_lengths", "data_parallel_rank")
"""Where a row stood."""


class _Slime(BaseModel):
    format_version: Literal[2]
    rollout_id: Count
    samples: list[dict[str, Any]]


class _Miles(BaseModel):
    rollout_id: Count
    rank: Count
    rollout_data: dict[str, Any]
    cp_size: Count


class _Sample(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    tokens: Tensor
    response_lengths: Count
    loss_masks: Tensor
    sample_index: Count | None = None
    rollout_ids: Annotated[int, Strict()] | None = None
    truncated: Literal[0, 1] = 0
    local_raw_reward: Any = None  # a reward function may return a mapping
    rollout_log_probs: Tensor | None = None
    log_probs: Tensor | None = None
    ref_log_probs: Tensor | None = None
    advantages: Tensor | None = None
    values: Tensor | None = None
    returns: Tensor | None = None


def found(trainer: str, path: Path) -> Mapping[int, Sequence[Path]]:
    """Return the files of a trainer by step, which is the ``rollout_id`` in a file."""
    paths = [path]
    if path.is_dir():
        paths = sorted(path.glob("*.pt")) or sorted(path.glob("train_data/*.pt"))
    files, broken = defaultdict[int, list[Path]](list), list[Path]()
    for each in (each for each in paths if each.suffix == ".pt" and each.is_file()):
        try:
            keys, step = begin_of(each)
        except (OSError, zipfile.BadZipFile):
            broken.append(each)
            continue
        if keys[: len(BEGINS[trainer])] == BEGINS[trainer]:
            files[step].append(each)
    if files and broken:
        raise RecordError(
            f"{broken[0]} cannot be read", got="a damaged file", expected="what torch.save writes"
        )
    return files


def _read_slime(step: int, paths: Sequence[Path]) -> DumpStep:
    if len(paths) > 1:
        raise RecordError(
            f"{paths[1]} is of the same step as {paths[0]}", got=step, expected="one file a step"
        )
    payload = validated(_Slime, load(paths[0], str(paths[0])), str(paths[0]))
    file = _file(paths[0], step, payload.samples, by_place=True)
    return DumpStep([file], _unread(payload.samples))


def _read_miles(step: int, paths: Sequence[Path]) -> DumpStep:
    files, unread = [], set[str]()
    for path in paths:
        payload = validated(_Miles, load(path, str(path)), str(path))
        if payload.cp_size > 1:
            raise RecordError(
                f"{path}: context parallelism has cut the rows", got=payload.cp_size, expected="cp_size 1"
            )
        columns = payload.rollout_data | {"sample_index": payload.rollout_data.get("sample_indices")}
        count = len(columns.get("tokens", ()))
        per_row = {name: x for name, x in columns.items() if isinstance(x, list) and len(x) == count}
        samples = [{name: column[i] for name, column in per_row.items()} for i in range(count)]
        files.append(_file(path, step, samples, by_place=False))
        unread.update(_unread([columns]))
    return DumpStep(files, sorted(unread - {"sample_indices"}))


def _unread(samples: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys of rows that nothing was made of."""
    return sorted({key for sample in samples for key in sample} - {*_Sample.model_fields, *LAYOUT})


def _file(path: Path, step: int, samples: Sequence[Mapping[str, Any]], *, by_place: bool) -> StepFile:
    """Return rows as a file of a trace.

    Args:
        path: the dump.
        step: its rollout_id.
        samples: what the dump has of each row.
        by_place: whether rows stand in the order in which they were sampled: groups side by side.
    """
    where = [f"{path}, sample {i}" for i in range(len(samples))]
    rows = [validated(_Sample, sample, place) for sample, place in zip(samples, where, strict=True)]
    streams = [_streams(row, place) for row, place in zip(rows, where, strict=True)]
    names = [str(row.sample_index) for row in rows]
    rewards = [row.local_raw_reward for row in rows]
    return step_of_rows(
        path,
        step,
        "loss_mask",
        streams,
        reward=rewards if all(isinstance(each, int | float) for each in rewards) else None,
        sample_id=names if all(row.sample_index is not None for row in rows) else None,
        group_id=_groups(rows, streams, by_place),
        finish_reason=["length" if row.truncated else "" for row in rows],
    )


def _streams(row: _Sample, where: str) -> dict[str, Tensor]:
    """Return the streams of a row; those of its response are NaN in the prompt."""
    length, response = len(row.tokens), row.response_lengths
    _check(row.tokens, (length,), (0, 2**31 - 1), f"{where}: tokens")
    _check(row.loss_masks, (response,), (0, 1), f"{where}: loss_masks")
    if response > length:
        raise RecordError(f"{where}: response_lengths is wrong", got=response, expected=f"at most {length}")
    prompt = length - response
    mask = torch.cat([torch.zeros(prompt, dtype=torch.uint8), row.loss_masks.to(torch.uint8)])
    in_response = torch.arange(length) >= prompt
    # a row that was taken out of the loss has a mask of zeros; all of its response counts as sampled
    streams = {
        "token_ids": row.tokens,
        "loss_mask": mask,
        "origin": origin_of_sampled(mask if mask.any() else in_response),
    }
    for name, ours in STREAMS.items():
        stream: Tensor | None = getattr(row, name)
        if stream is not None and (row.values is not None or name != "returns"):
            _check(stream, (response,), None, f"{where}: {name}")
            streams[ours] = torch.cat([torch.full((prompt,), torch.nan), stream.float()])
    return streams


def _check(tensor: Tensor, shape: tuple[int, ...], limits: tuple[int, int] | None, where: str) -> None:
    """Raise unless a tensor has a shape, and whole numbers within limits if there are any."""
    if tuple(tensor.shape) != shape:
        raise RecordError(f"{where} has another shape", got=tuple(tensor.shape), expected=shape)
    if limits and len(tensor):
        low, high = tensor.min().item(), tensor.max().item()
        if tensor.is_floating_point() or not limits[0] <= low <= high <= limits[1]:
            raise RecordError(
                f"{where} is out of range", got=f"{low} to {high}", expected=f"{limits[0]} to {limits[1]}"
            )


def _groups(
    rows: Sequence[_Sample], streams: Sequence[Mapping[str, Tensor]], by_place: bool
) -> list[str] | None:
    """Return the group of each row: neighbours with one prompt; None if rollouts have several rows each."""
    rollouts = [row.rollout_ids for row in rows if row.rollout_ids is not None]
    if len(set(rollouts)) < len(rollouts):
        return None
    prompts = [
        prompt_group(
            each["token_ids"], torch.arange(len(row.tokens)) >= len(row.tokens) - row.response_lengths
        )
        for row, each in zip(rows, streams, strict=True)
    ]
    if not by_place:
        return prompts
    runs = [list(run) for _, run in groupby(prompts)]
    return [f"g{number}" for number, run in enumerate(runs) for _ in run]


READERS = (
    Reader("slime", partial(found, "slime"), _read_slime),
    Reader("miles", partial(found, "miles"), _read_miles),
)
