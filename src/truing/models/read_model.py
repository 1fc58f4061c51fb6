"""Reads the model of a folder: every weight as it is in the files, or an error that says what they lack."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch.distributed.device_mesh import DeviceMesh
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from truing.distributed.ranks import Ranks
from truing.distributed.sharding import keep_parts
from truing.errors import ModelError
from truing.models.digest import file_digest
from truing.models.folder_check import check_folder
from truing.models.progress_bars import no_progress_bars
from truing.models.read_parts import reading_parts
from truing.utils.format import first_line, shorten
from truing.utils.memory import is_out_of_memory

LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.([0-9]{1,6})\.")
"""The number of a decoder layer in the name of a weight."""

LIBRARY_ERROR = 160
"""Characters of a library's error: it may cite a file that is not what it should be."""


def cited(error: Exception) -> str:
    """Return the first line of a library's error, shortened."""
    return shorten(first_line(error), LIBRARY_ERROR)


def check_same_files(folder: Path, ranks: Ranks) -> None:
    """Raise on all ranks if one has other files: parts of several models would make one."""
    if ranks.size == 1:
        return
    weights = (path for path in folder.iterdir() if path.suffix in (".safetensors", ".bin"))
    paths = [folder / "config.json", *sorted(weights)]
    ranks.check_same(
        {f"the model's {path.name}": file_digest(path) for path in paths},
        remedy="let every rank read the same model folder",
    )


def read_model(folder: Path, device: str, dtype: torch.dtype, mesh: DeviceMesh | None) -> PreTrainedModel:
    """Return a model with every weight as it is in the files."""
    try:
        with no_progress_bars(), reading_parts(mesh):
            loaded = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype,
                device_map=None if mesh is None else device,  # a whole model is moved later
                output_loading_info=True,
                trust_remote_code=False,
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # the error below names them
            )
            model, report = cast(tuple[PreTrainedModel, dict[str, Any]], loaded)  # with loading info
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ModelError(
            "this model folder cannot be read",
            got=f"{folder}: {type(error).__name__}: {cited(error)}",
            expected="config.json and *.safetensors of a decoder-only model, not quantized and without code",
            remedy="name another folder; `truing explain models` lists the types",
        ) from error
    _refuse_dropped_layers(model, sorted(report["unexpected_keys"]), folder)
    _refuse_absent_weights(report, folder)
    if mesh is not None:
        keep_parts(model, mesh)  # of a model that was read whole
    return model


def _refuse_absent_weights(report: Mapping[str, Any], folder: Path) -> None:
    """Raise if files lack weights, which transformers would fill with random numbers."""
    absent, mismatched = sorted(report["missing_keys"]), sorted(report["mismatched_keys"], key=str)
    if absent or mismatched:
        shapes = [
            f"{name} {tuple(loaded)}, not {tuple(expected)}" for name, loaded, expected in mismatched[:3]
        ]
        raise ModelError(
            "the files lack weights that the model needs",
            got=f"{folder}: {len(absent)} missing, {len(mismatched)} of another shape, among them"
            f" {', '.join([*absent[:3], *shapes])}",
            expected="every weight, in the shape of config.json",
            remedy="download the model again, or check that config.json belongs to these weights",
        )


def _refuse_dropped_layers(model: PreTrainedModel, unexpected: Sequence[str], folder: Path) -> None:
    """Raise if files have layers beyond those of the model, which transformers would leave out."""
    layers = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    numbers = [int(match[1]) for name in unexpected if (match := LAYER.search(name))]
    if layers is not None and any(number >= layers for number in numbers):
        raise ModelError(
            "the weights have more layers than config.json counts",
            got=f"{folder}: weights of layer {max(numbers)}, counted from 0",
            expected=f"num_hidden_layers = {layers} layers",
            remedy="copy the config.json that belongs to these weights; to train fewer layers, save the model"
            " without the weights of the others",
        )


def shapes_of_model(folder: Path) -> PreTrainedModel:
    """Return the model of a folder with shapes and without weights."""
    check_folder(folder)
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception as error:
        raise ModelError(
            "config.json of this model folder describes no model",
            got=f"{folder}: {type(error).__name__}: {cited(error)}",
            expected="the config of a decoder-only model",
            remedy="download the model again",
        ) from error
