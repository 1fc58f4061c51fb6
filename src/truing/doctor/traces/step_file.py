"""A file of a trace: the rows of one step that one process wrote, validated."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from truing.errors import RecordError
from truing.types.facts import Facts
from truing.types.passes import PASS_STREAMS
from truing.types.sample import FLOAT_STREAMS
from truing.types.token import Origin
from truing.types.values import Count, Integer
from truing.utils.format import shorten

TENSORS: Mapping[str, tuple[str, str]] = {
    "token_ids": ("I32", "N"),
    "row_lengths": ("I32", "B"),
    "origin": ("U8", "N"),
    "loss_mask": ("U8", "N"),
    "reward": ("F64", "B"),
    "pass.sample": ("I32", "P"),
    "pass.optimizer_step": ("I32", "P"),
    "pass.micro_batch": ("I32", "P"),
    "pass.rank": ("I32", "P"),
    **dict.fromkeys(FLOAT_STREAMS, ("F32", "N")),
    **{f"pass.{name}": ("F32", "M") for name in PASS_STREAMS},
}
"""The tensors of a file, with type and length: N tokens of B rows; M tokens of P passes."""

REQUIRED = ("token_ids", "row_lengths", "origin", "loss_mask")

PLACES = ("pass.sample", "pass.optimizer_step", "pass.micro_batch", "pass.rank")

MOST_PASSES, LARGEST_REWARD = 100_000, 1e100
"""Of optimizer steps, micro-batches or ranks; and of a reward, whose sums must be numbers too."""

AnyNumber = Annotated[float, Strict()]
"""Also NaN and infinity: they are what the trainer had, and rules judge them."""

Texts = list[Annotated[str, Field(max_length=1_000_000)]]


class Totals(BaseModel):
    """What the step had in all, where the trace has a part of it."""

    model_config = ConfigDict(extra="forbid")

    rows: Count
    loss_tokens: Count | None = None
    groups: Count | None = None


class StepFacts(BaseModel):
    """What a file says besides tensors; lists have a value for each row."""

    model_config = ConfigDict(extra="forbid")

    step: Count
    origin_source: Literal["sampler", "roles", "sampled_mask", "loss_mask"]
    sample_id: Texts | None = None
    group_id: Texts | None = None
    prompt_id: Texts | None = None
    episode_id: Texts | None = None
    family: Texts | None = None
    text: Texts | None = None
    finish_reason: Texts | None = None
    version: list[Integer] | None = None
    weights: Texts | None = None
    messages: list[list[dict[str, Any]]] | None = None
    reward_parts: dict[str, list[AnyNumber]] = {}
    numbers: dict[str, AnyNumber] = {}
    facts: Facts = Field(default_factory=Facts)
    totals: Totals | None = None
    texts: dict[str, str] = {}


@dataclass(frozen=True, eq=False)
class StepFile:
    """The rows of a step that one process wrote."""

    path: Path
    facts: StepFacts
    tensors: Mapping[str, Tensor]

    @property
    def lengths(self) -> list[int]:
        """Tokens of each row."""
        return self.tensors["row_lengths"].tolist()

    @property
    def sample_ids(self) -> list[str]:
        """The name of each row; without one its file and number."""
        return self.facts.sample_id or [f"{self.path.stem}.{i}" for i in range(len(self.lengths))]


def read_step_file(path: Path) -> StepFile:
    """Read and validate a file; raise a RecordError that says what, got and expected."""
    if not path.is_file():  # a pipe would never end
        raise RecordError(f"{path} is no regular file")
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get("trace")
            names = list(file.keys())
            kinds = {name: file.get_slice(name).get_dtype() for name in names}
            tensors = {name: file.get_tensor(name) for name in names if name in TENSORS}
    except (SafetensorError, OSError, ValueError) as error:
        raise RecordError(
            f"{path} cannot be read", got=shorten(str(error)), expected="a whole safetensors file"
        ) from error
    if text is None:
        raise RecordError(
            f"{path} is no file of a trace",
            got="no metadata `trace`",
            expected="what `truing_trace.Writer` writes (`truing explain trace`)",
        )
    facts = _facts(path, text)
    _check_names(path, kinds)
    read = StepFile(path, facts, tensors)
    check_step_file(read)
    return read


def check_step_file(file: StepFile) -> None:
    """Raise a RecordError unless lengths fit each other, and values can be what they are."""
    _check_lengths(file)
    _check_values(file)


def _facts(path: Path, text: str) -> StepFacts:
    """Return the JSON of a file; raise a RecordError at its first wrong key."""
    try:
        return StepFacts.model_validate(json.loads(text))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise RecordError(
            f"{path}: {where or 'its metadata'} is wrong",
            got=shorten(repr(first["input"])),
            expected=first["msg"],
            remedy="`truing explain trace` lists the keys",
        ) from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: its metadata is no JSON", got=shorten(str(error))) from error


def _check_names(path: Path, kinds: Mapping[str, str]) -> None:
    """Raise unless all required tensors are there, and all that are there have their type."""
    for name in REQUIRED:
        if name not in kinds:
            raise RecordError(f"{path} lacks {name}", got=", ".join(kinds), expected=", ".join(REQUIRED))
    for name, kind in kinds.items():
        if name not in TENSORS:
            raise RecordError(
                f"{path} has an unknown tensor", got=name, expected="one that `truing explain trace` lists"
            )
        if kind != TENSORS[name][0]:
            raise RecordError(f"{path}: {name} has another type", got=kind, expected=TENSORS[name][0])


def _check_lengths(file: StepFile) -> None:
    """Raise unless every tensor and list has the length that rows and passes give it."""
    lengths, tensors = file.lengths, file.tensors
    if any(length < 1 for length in lengths):
        raise RecordError(f"{file.path}: a row has no token", got=min(lengths), expected="at least 1")
    sizes = {"B": len(lengths), "N": sum(lengths)}
    places = [name for name in tensors if name.startswith("pass.")]
    if places:
        for name in PLACES:
            if name not in tensors:
                raise RecordError(
                    f"{file.path} lacks {name}", got=", ".join(places), expected=", ".join(PLACES)
                )
        samples = tensors["pass.sample"]
        if len(samples) and not 0 <= int(samples.min()) <= int(samples.max()) < len(lengths):
            got = f"{int(samples.min())} to {int(samples.max())}"
            raise RecordError(
                f"{file.path}: pass.sample is no row", got=got, expected=f"0 to {len(lengths) - 1}"
            )
        sizes |= {"P": len(samples), "M": sum(lengths[i] for i in samples.tolist())}
    for name, tensor in tensors.items():
        size = sizes[TENSORS[name][1]]
        if tuple(tensor.shape) != (size,):
            raise RecordError(
                f"{file.path}: {name} has another shape", got=tuple(tensor.shape), expected=(size,)
            )
    for name, values in _columns(file.facts).items():
        if len(values) != len(lengths):
            raise RecordError(
                f"{file.path}: {name} has not one value for each row", got=len(values), expected=len(lengths)
            )


def _columns(facts: StepFacts) -> dict[str, list[Any]]:
    """Return the lists that have a value for each row."""
    known = {name: x for name, x in facts if isinstance(x, list)}
    return known | {f"reward_parts.{name}": values for name, values in facts.reward_parts.items()}


def _check_values(file: StepFile) -> None:
    """Raise unless ids, origins, masks and places can be what they are."""
    ranges = {"token_ids": (0, 2**31), "origin": (0, max(Origin)), "loss_mask": (0, 1)}
    ranges |= dict.fromkeys((name for name in PLACES if name in file.tensors), (0, MOST_PASSES))
    for name, (low, high) in ranges.items():
        tensor = file.tensors[name]
        if len(tensor) and not low <= int(tensor.min()) <= int(tensor.max()) <= high:
            got = f"{int(tensor.min())} to {int(tensor.max())}"
            raise RecordError(f"{file.path}: {name} is out of range", got=got, expected=f"{low} to {high}")
    if "reward" in file.tensors:
        known = file.tensors["reward"][file.tensors["reward"].isfinite()]
        if len(known) and float(known.abs().max()) > LARGEST_REWARD:
            got, most = f"{float(known.abs().max()):g}", f"at most {LARGEST_REWARD:g}"
            raise RecordError(f"{file.path}: a reward is out of range", got=got, expected=most)
    names = file.sample_ids
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise RecordError(f"{file.path}: sample_id names two rows", got=twice, expected="a name for each row")
