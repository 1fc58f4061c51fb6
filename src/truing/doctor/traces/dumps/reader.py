"""What the reader of one trainer's dumps is, and how rows of a dump become a step of a trace."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from pydantic import BaseModel, ValidationError
from torch import Tensor

from truing.doctor.traces.step_file import StepFacts, StepFile, check_step_file
from truing.errors import RecordError
from truing.types.token import Origin
from truing.utils.format import shorten
from truing.utils.parse import parse_json
from truing.utils.regular_files import open_regular

Model = TypeVar("Model", bound=BaseModel)

OriginSource = Literal["sampler", "roles", "sampled_mask", "loss_mask"]

DTYPES = {"token_ids": torch.int32, "origin": torch.uint8, "loss_mask": torch.uint8}
"""Types of the streams of a row; all others are float32."""


@dataclass(frozen=True, eq=False)
class DumpStep:
    """What the dump has of one step."""

    files: Sequence[StepFile]
    unread: Sequence[str] = ()  # keys of the dump that nothing was made of


@dataclass(frozen=True)
class Reader:
    """How the dumps of one trainer are found and read."""

    trainer: str
    found: Callable[[Path], Mapping[int, Sequence[Path]]]  # the files of each step from 0; none elsewhere
    read: Callable[[int, Sequence[Path]], DumpStep]


def step_of_rows(
    path: Path,
    step: int,
    origin_source: OriginSource,
    rows: Sequence[Mapping[str, Tensor]],
    *,
    reward: Sequence[float] | None = None,
    more: Mapping[str, Tensor] | None = None,
    **facts: Any,
) -> StepFile:
    """Return rows as a file of a trace, validated as one.

    Args:
        path: the dump, for errors.
        step: from 0.
        origin_source: what the origins were made from.
        rows: the streams of each, [T]; a stream that a row lacks is NaN there.
        reward: of each row.
        more: tensors of passes.
        facts: of each row or of the step, by the names of ``StepFacts``.
    """
    if not rows:
        raise RecordError(f"{path} has no row", got="none", expected="at least one")
    lengths = [len(row["token_ids"]) for row in rows]
    names = dict.fromkeys(name for row in rows for name in row)
    tensors = {
        name: torch.cat(
            [
                row.get(name, torch.full((length,), torch.nan)).to(DTYPES.get(name, torch.float32))
                for row, length in zip(rows, lengths, strict=True)
            ]
        )
        for name in names
    }
    tensors["row_lengths"] = torch.tensor(lengths, dtype=torch.int32)
    if reward is not None:
        tensors["reward"] = torch.tensor(reward, dtype=torch.float64)
    file = StepFile(
        path, StepFacts(step=step, origin_source=origin_source, **facts), tensors | dict(more or {})
    )
    check_step_file(file)
    return file


def origin_of_sampled(sampled: Tensor) -> Tensor:
    """Return origins by which tokens were sampled: before the first one is the prompt, others are replies.

    Example: ``[0, 1, 0, 1]`` is prompt, sampled, tool, sampled.
    """
    chosen = sampled > 0
    origin = torch.where(chosen.cumsum(0) > 0, Origin.TOOL, Origin.PROMPT)
    return torch.where(chosen, Origin.SAMPLED, origin).to(torch.uint8)


def prompt_group(ids: Tensor, sampled: Tensor) -> str:
    """Return the name of a group of rows with the same tokens before the first sampled one."""
    prompt = ids[sampled.cumsum(0) == 0]
    return hashlib.sha256(repr(prompt.tolist()).encode()).hexdigest()[:16]


def validated(model: type[Model], value: Any, where: str) -> Model:
    """Return a value of a dump as a model; raise a RecordError at its first wrong key."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise RecordError(
            f"{where}: {'.'.join(map(str, first['loc'])) or 'the value'} is wrong",
            got="nothing" if first["type"] == "missing" else shorten(repr(first["input"])),
            expected=first["msg"],
            remedy="`truing explain trace` says which versions of trainers are read",
        ) from error


def json_objects(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the JSON objects of a file with where each stands; NaN and infinity are numbers here."""
    found = []
    try:
        with open_regular(path) as lines:
            for number, line in enumerate(lines, start=1):
                where = f"{path}, line {number}"
                found.append((where, _object(line, where)))
    except OSError as error:
        raise RecordError(f"{path} cannot be read", got=shorten(str(error))) from error
    return found


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        value = parse_json(line)
    except ValueError as error:
        raise RecordError(f"{where} is damaged", got=shorten(str(error)), expected="a JSON object") from error
    if not isinstance(value, dict):
        raise RecordError(f"{where} is damaged", got=type(value).__name__, expected="a JSON object")
    return value
