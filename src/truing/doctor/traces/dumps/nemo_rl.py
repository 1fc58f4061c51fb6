"""NeMo-RL's ``train_data_step{N}.jsonl``: a line for each row of a step, padded on the right.

``nemo_rl/algorithms/grpo.py`` and its like write it by default, into the folder of their logs, with
``Logger.log_batched_dict_as_jsonl``: each key has a list of one element.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import torch
from pydantic import BaseModel, Field, Strict

from truing.doctor.traces.dumps.reader import (
    DumpStep,
    Reader,
    json_objects,
    origin_of_sampled,
    prompt_group,
    step_of_rows,
    validated,
)
from truing.doctor.traces.step_file import AnyNumber
from truing.errors import RecordError

NAME = re.compile(r"train_data_step([1-9][0-9]{0,8})\.jsonl")

Id = Annotated[int, Strict(), Field(ge=0, lt=2**31)]
Bit = Annotated[int, Strict(), Field(ge=0, le=1)]
One = tuple
"""A list of one element."""


class _Row(BaseModel):
    """A line; ``filtered_rewards`` is there under dynamic sampling, and is then what trains."""

    token_ids: One[list[Id]]
    input_lengths: One[Annotated[int, Strict(), Field(ge=1)]]
    token_loss_mask: One[list[Bit]]
    sample_loss_mask: One[AnyNumber]
    advantages: One[list[AnyNumber]]
    generation_logprobs: One[list[AnyNumber]]
    prev_logprobs: One[list[AnyNumber]]
    rewards: list[AnyNumber] = Field(max_length=1)
    filtered_rewards: One[AnyNumber] | None = None


OF_TOKENS = ("token_loss_mask", "advantages", "generation_logprobs", "prev_logprobs")

UNREAD_BY_DESIGN = ("idx",)
"""The number of a line."""


def found(path: Path) -> Mapping[int, Sequence[Path]]:
    """Return the files by step, as the trainer counts them."""
    paths = path.iterdir() if path.is_dir() else [path]
    matches = [(match, each) for each in paths if (match := NAME.fullmatch(each.name))]
    return {int(match[1]): [each] for match, each in matches}


def read(step: int, paths: Sequence[Path]) -> DumpStep:
    """Return a step; lines beyond the trained rows have only rewards that dynamic sampling left out."""
    (path,) = paths
    lines = [(where, line) for where, line in json_objects(path) if line.get("token_ids") != []]
    rows = [_checked(validated(_Row, line, where), where) for where, line in lines]
    streams = [_streams(row) for row in rows]
    if all(not (row["old_logprob"] != 0).any() for row in streams):
        for row in streams:  # zeros stand for the numbers that force_on_policy_ratio does not need
            del row["old_logprob"]
    groups = [
        prompt_group(each["token_ids"], torch.tensor(row.token_loss_mask[0][: row.input_lengths[0]]))
        for row, each in zip(rows, streams, strict=True)
    ]
    rewards = [row.filtered_rewards or row.rewards for row in rows]
    reward = [each[0] if each else torch.nan for each in rewards]
    file = step_of_rows(path, step, "sampled_mask", streams, reward=reward, group_id=groups)
    known = {*_Row.model_fields, *UNREAD_BY_DESIGN}
    return DumpStep([file], sorted({key for _, line in lines for key in line} - known))


def _checked(row: _Row, where: str) -> _Row:
    """Return a row; raise if its streams have other lengths than its tokens."""
    tokens = len(row.token_ids[0])
    for name in OF_TOKENS:
        if (length := len(getattr(row, name)[0])) != tokens:
            raise RecordError(f"{where}: {name} has another length", got=length, expected=tokens)
    if row.input_lengths[0] > tokens:
        raise RecordError(
            f"{where}: input_lengths is wrong", got=row.input_lengths[0], expected=f"at most {tokens}"
        )
    return row


def _streams(row: _Row) -> dict[str, torch.Tensor]:
    """Return the streams of a row without its padding."""
    end = row.input_lengths[0]
    mask = torch.tensor(row.token_loss_mask[0][:end])
    return {
        "token_ids": torch.tensor(row.token_ids[0][:end]),
        "origin": origin_of_sampled(mask),
        "loss_mask": mask * (row.sample_loss_mask[0] > 0),
        "advantage": torch.tensor(row.advantages[0][:end]),
        "sampler_logprob": torch.tensor(row.generation_logprobs[0][:end]),
        "old_logprob": torch.tensor(row.prev_logprobs[0][:end]),
    }


READER = Reader("NeMo-RL", found, read)
