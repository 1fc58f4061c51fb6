"""A check that a folder contains a trainable model, before any weights are read."""

import re
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from transformers.models.auto.configuration_auto import (
    CONFIG_MAPPING_NAMES,  # pyright: ignore[reportPrivateImportUsage] (auto_mappings lacks what it adds)
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from truing.errors import ModelError
from truing.models.foreign_code import read_json, refuse_code, refuse_links, refuse_outside, refuse_pickle

ADAPTER, CONFIG, INDEX = "adapter_config.json", "config.json", "model.safetensors.index.json"

LANGUAGE_MODEL = re.compile(r"CausalLM|LMHead|ConditionalGeneration|PreTraining")
"""Matches names of architectures that predict the next token of a vocabulary."""

MOST = {"layer": 1_000, "expert": 10_000, "head": 10_000}
"""Most parts of a kind in a model: transformers makes an object of each, before it looks for its weights."""

EXPECTED = "a folder with config.json and the weights of a whole language model"


def check_folder(folder: Path) -> None:
    """Raise if a folder is an adapter, a run, a checkpoint, incomplete, or another kind of model."""
    refuse_run(folder)
    refuse_links(folder)
    if (folder / ADAPTER).is_file():
        raise _adapter_error(folder)
    if not (folder / CONFIG).is_file():
        raise _no_config_error(folder)
    refuse_code(folder, CONFIG, ("AutoConfig", "AutoModelForCausalLM"))
    refuse_pickle(folder)
    config = read_json(folder / CONFIG)
    _check_types(folder, config)
    _check_kind(folder, config)
    _check_counts(folder, config)
    if (folder / INDEX).is_file():
        weight_map = read_json(folder / INDEX).get("weight_map", {})
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise _wrong_type(
                folder / INDEX, "weight_map", weight_map, "the file of each weight, by its name"
            )
        shards = set(weight_map.values())
        refuse_outside(folder / INDEX, shards)
        if absent := sorted(shard for shard in shards if not (folder / shard).is_file()):
            raise ModelError(
                "this model folder lacks some of its weight files",
                got=f"{folder}: {len(absent)} of {len(shards)} missing, among them {absent[0]}",
                expected=f"every file that {INDEX} names",
                remedy="download the model again",
            )


def refuse_run(folder: Path, *, for_adapter: bool = False) -> None:
    """Raise if a folder belongs to a run: it contains a policy's parameters, not files to load.

    ``for_adapter`` says that an adapter is expected there instead of a model.
    """
    folder = folder.resolve()
    if (folder / "state.json").is_file() and any(folder.glob("trainable*.safetensors")):
        run = folder.parent.parent if folder.parent.name == "checkpoints" else Path("RUN")
        what = "a checkpoint of a run"
    elif folder.name == "checkpoints" and (folder / "last").is_file():
        what, run = "the checkpoints of a run", folder.parent
    elif (folder / "run.json").is_file() and (folder / "recipe.toml").is_file():
        what, run = "a run", folder
    else:
        return
    if for_adapter and _trains_all_weights(run):
        remedy = (
            f"the run has no adapter, it trains all weights: `truing export {quote(str(run))} --to FOLDER`;"
            " then model.name = FOLDER, without lora.adapter"
        )
    else:
        option, key = (" --adapter", "lora.adapter") if for_adapter else ("", "model.name")
        remedy = (
            f"`truing export {quote(str(run))}{option} --to FOLDER` writes one of the run's newest"
            f" checkpoint; then {key} = FOLDER"
        )
    raise ModelError(
        f"this folder is {what}, not {'an adapter' if for_adapter else 'a model'}",
        got=folder,
        expected=f"a folder with {ADAPTER}" if for_adapter else EXPECTED,
        remedy=remedy,
    )


def _trains_all_weights(run: Path) -> bool:
    """Return whether a run has no adapter; False if its recipe is not there."""
    file = run / "run.json"
    return file.is_file() and read_json(file).get("recipe", {}).get("lora") is False


def _adapter_error(folder: Path) -> ModelError:
    """Return the error for a folder that contains an adapter."""
    config = read_json(folder / ADAPTER)
    return ModelError(
        "this folder is an adapter, not a whole model",
        got=f"{folder}: {config.get('peft_type', 'peft')} of {config.get('base_model_name_or_path')}",
        expected=EXPECTED,
        remedy=f'to train it further, set model.name to its base, and lora.adapter = "{folder}". Or merge it:'
        " for a run of Truing with `truing export RUN --to FOLDER` without --adapter, otherwise with"
        " merge_and_unload and save_pretrained of peft; then model.name = FOLDER",
    )


def _no_config_error(folder: Path) -> ModelError:
    """Return the error for a folder without config.json."""
    gguf_files = sorted(file.name for file in folder.glob("*.gguf"))
    if gguf_files:
        return ModelError(
            "this folder holds GGUF files; each is a model of its own",
            got=f"{folder}: {', '.join(gguf_files[:3])}",
            expected=EXPECTED,
            remedy=f'name the file: model.name = "{folder / gguf_files[0]}"',
        )
    names = sorted(file.name for file in folder.iterdir())
    return ModelError(
        "this folder is not a model: it has no config.json",
        got=f"{folder}: {', '.join(names[:5]) or 'nothing'}",
        expected=EXPECTED,
        remedy="name the folder that holds config.json, or a hub id",
    )


def _check_types(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise if a value that tells the kind of model is of another type."""
    kind, classes = config.get("model_type"), config.get("architectures")
    if not isinstance(kind, str | None):
        raise _wrong_type(folder / CONFIG, "model_type", kind, "a name")
    named = isinstance(classes, list) and all(isinstance(name, str) for name in classes)
    if classes is not None and not named:
        raise _wrong_type(folder / CONFIG, "architectures", classes, "a list of names")


def _wrong_type(file: Path, key: str, value: object, expected: str) -> ModelError:
    return ModelError(
        f"{file.name} describes no model",
        got=f"{file.parent}: {key} = {str(value)[:100]}",
        expected=expected,
        remedy=f"copy the {file.name} that belongs to these weights",
    )


def _check_kind(folder: Path, config: dict[str, Any]) -> None:
    """Raise if config.json does not describe a causal language model."""
    kind, classes = config.get("model_type"), config.get("architectures") or []
    if kind not in CONFIG_MAPPING_NAMES:
        raise _not_causal(folder, "the installed transformers does not know this model type", kind)
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise _not_causal(folder, "transformers has no causal language model of this type", kind)
    if config.get("is_encoder_decoder"):
        raise _not_causal(folder, "this is an encoder-decoder model", kind)
    if classes and all("For" in name and not LANGUAGE_MODEL.search(name) for name in classes):
        raise _not_causal(folder, "these weights are for another task than language modeling", classes[0])


def _check_counts(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise if config.json or a part of it counts more layers, experts or heads than a model has."""
    for key, value in config.items():
        if isinstance(value, dict):
            _check_counts(folder, value)
        most = next((most for kind, most in MOST.items() if kind in key), None)
        if most is not None and isinstance(value, int | float) and value > most:
            raise ModelError(
                "config.json describes no model",
                got=f"{folder}: {key} = {value}",
                expected=f"at most {most}",
                remedy="copy the config.json that belongs to these weights",
            )


def _not_causal(folder: Path, what: str, got: object) -> ModelError:
    return ModelError(
        what,
        got=f"{folder}: {got}",
        expected="a decoder-only model, …ForCausalLM",
        remedy="name the language model it was trained from; `truing explain models` lists the types",
    )
