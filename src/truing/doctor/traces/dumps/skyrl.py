"""SkyRL's ``trainer.dump_data_batch``: ``dumped_data/global_step_N_training_input.pkl``, padded on the left.

``skyrl/train/trainer.py`` pickles a ``TrainingInputBatch`` (``backends/skyrl_train/training_batch.py``),
a mapping of tensors as bytes. It has no rewards: the trainer takes them out before.
"""

import io
import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from truing.doctor.traces.dumps.reader import DumpStep, Reader, origin_of_sampled, step_of_rows, validated
from truing.doctor.traces.dumps.torch_files import load
from truing.doctor.traces.step_file import AnyNumber
from truing.errors import RecordError
from truing.types.values import Count
from truing.utils.format import shorten
from truing.utils.parse import MALFORMED
from truing.utils.regular_files import read_regular

NAME = re.compile(r"global_step_([1-9][0-9]{0,8})_training_input\.pkl")

MODULE = "skyrl.backends.skyrl_train.training_batch"

DTYPES = {
    **{"int64": torch.int64, "int32": torch.int32, "uint8": torch.uint8, "bool": torch.bool},
    **{"float32": torch.float32, "float64": torch.float64, "float16": torch.float16},
}

STREAMS = {
    "rollout_logprobs": "sampler_logprob",
    "action_log_probs": "old_logprob",
    "base_action_log_probs": "ref_logprob",
    "advantages": "advantage",
    "values": "value",
    "returns": "returns",
}
"""Streams over responses, [B, R]. Without a critic, returns are copies of the advantages."""

REQUIRED = ("sequences", "attention_mask", "response_mask", "loss_mask")


class _Metadata(BaseModel):
    pad_size: Count = 0
    policy_prompt_boundaries: list[tuple[Count, Count]] = []
    metrics: dict[str, AnyNumber] = {}


class _Tensor(BaseModel):
    format: str = "numpy"
    data: bytes
    shape: tuple[Count, ...] = ()
    dtype: str = ""


class _State(BaseModel):
    batch_dict: dict[str, dict[str, Any] | None]
    metadata: _Metadata


class _Unpickler(pickle.Unpickler):
    """Reads the batch as the mapping that it was made of, and refuses any other class by its name."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Return a stand-in for one of the three names that such a file has."""
        names = {
            (MODULE, "_rebuild_tensor_batch"): lambda kind, state: state,
            (MODULE, "TrainingInputBatch"): str,
            ("torch", "device"): lambda *where: where,
        }
        if (module_name, global_name) not in names:
            raise pickle.UnpicklingError(f"the class {module_name}.{global_name}")
        return names[module_name, global_name]


def found(path: Path) -> Mapping[int, Sequence[Path]]:
    """Return the files of a folder, the one above it, or one file, by step as the trainer counts them."""
    paths = [path]
    if path.is_dir():
        paths = [*path.glob("*.pkl"), *path.glob("dumped_data/*.pkl")]
    matches = [(match, each) for each in paths if (match := NAME.fullmatch(each.name))]
    return {int(match[1]): [each] for match, each in matches}


def read(step: int, paths: Sequence[Path]) -> DumpStep:
    """Return a step without the rows that only fill the batch."""
    (path,) = paths
    state = validated(_State, _state(path), str(path))
    given = {name: each for name, each in state.batch_dict.items() if each is not None}
    tensors = {
        name: _tensor(validated(_Tensor, given[name], f"{path}: {name}"), f"{path}: {name}")
        for name in (*REQUIRED, *STREAMS)
        if name in given
    }
    _check_shapes(tensors, path)
    rows = [_streams(tensors, i) for i in range(len(tensors["sequences"]) - state.metadata.pad_size)]
    file = step_of_rows(
        path,
        step,
        "loss_mask",
        rows,
        group_id=_groups(state.metadata.policy_prompt_boundaries, len(rows)),
        numbers=state.metadata.metrics,
    )
    return DumpStep([file], sorted(given.keys() - {*REQUIRED, *STREAMS}))


def _state(path: Path) -> Any:
    """Return what a file holds; nothing that it names is run."""
    try:
        return _Unpickler(io.BytesIO(read_regular(path, most=None))).load()
    except (*MALFORMED, OSError, EOFError, pickle.UnpicklingError) as error:
        raise RecordError(
            f"{path} cannot be read",
            got=shorten(str(error) or type(error).__name__),
            expected="a pickled TrainingInputBatch of SkyRL with tensors, numbers, texts and lists alone",
        ) from error


def _tensor(given: _Tensor, where: str) -> Tensor:
    """Return a tensor of its bytes."""
    if given.format == "torch":
        return load(io.BytesIO(given.data), where)
    if given.dtype not in DTYPES:
        raise RecordError(f"{where} has another type", got=shorten(given.dtype), expected=", ".join(DTYPES))
    dtype = DTYPES[given.dtype]
    expected = dtype.itemsize * int(torch.tensor(given.shape).prod())
    if len(given.data) != expected or not given.data:
        raise RecordError(f"{where} has another size", got=f"{len(given.data)} bytes", expected=expected)
    return torch.frombuffer(bytearray(given.data), dtype=dtype).reshape(given.shape)


def _check_shapes(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raise unless ids and masks are there, and each tensor is [B, L], or [B, R] over responses."""
    for name in REQUIRED:
        if name not in tensors:
            raise RecordError(f"{path} lacks {name}", got=", ".join(tensors), expected=", ".join(REQUIRED))
    whole, response = tensors["sequences"].shape, tensors["response_mask"].shape
    for name, tensor in tensors.items():
        expected = whole if name in ("sequences", "attention_mask") else response
        shape = tuple(tensor.shape)
        if shape != expected or len(shape) != 2 or response[1] > whole[1]:
            raise RecordError(f"{path}: {name} has another shape", got=shape, expected=tuple(expected))
    for name in REQUIRED:
        most = 2**31 - 1 if name == "sequences" else 1
        low, high = tensors[name].min().item(), tensors[name].max().item()
        if not 0 <= low <= high <= most:
            got = f"{low} to {high}"
            raise RecordError(f"{path}: {name} is out of range", got=got, expected=f"0 to {most}")


def _streams(tensors: Mapping[str, Tensor], row: int) -> dict[str, Tensor]:
    """Return the streams of a row without its padding; those of its response are NaN in the prompt."""
    kept = tensors["attention_mask"][row].bool()
    before = len(kept) - tensors["response_mask"].shape[1]

    def placed(name: str, fill: float) -> Tensor:
        values = tensors[name][row]
        return torch.cat([torch.full((before,), fill).to(values.dtype), values])[kept]

    response, mask = placed("response_mask", 0) > 0, placed("loss_mask", 0) > 0
    # a row that was taken out of the loss has a mask of zeros; all of its response counts as sampled
    streams = {"token_ids": tensors["sequences"][row][kept], "loss_mask": mask}
    streams["origin"] = origin_of_sampled(mask if mask.any() else response)
    for name, ours in STREAMS.items():
        if name in tensors and (name != "returns" or "values" in tensors):
            streams[ours] = placed(name, torch.nan).masked_fill(~response, torch.nan)
    return streams


def _groups(boundaries: Sequence[tuple[int, int]], rows: int) -> list[str] | None:
    """Return the group of each row by where prompts begin and end; None if they do not cover the rows."""
    groups = [f"g{number}" for number, (start, end) in enumerate(boundaries) for _ in range(start, end)]
    return groups if len(groups) == rows else None


READER = Reader("SkyRL", found, read)
