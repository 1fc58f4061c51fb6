"""What a model folder is, where it is none that can be trained: told before anything is read from it."""

import json
import re
from pathlib import Path
from typing import Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from truing.errors import ModelError

ADAPTER, CONFIG, INDEX = "adapter_config.json", "config.json", "model.safetensors.index.json"

LANGUAGE_MODEL = re.compile(r"CausalLM|LMHead|ConditionalGeneration|PreTraining")
"""In the names of architectures that have an output layer over a vocabulary, and predict what comes next."""

EXPECTED = "a folder with config.json and the weights of a whole language model"


def check_folder(folder: Path) -> None:
    """Raise where a folder is an adapter, a run, a checkpoint, incomplete, or a model of another kind."""
    _refuse_run(folder)
    if (folder / ADAPTER).is_file():
        raise _adapter_error(folder)
    if not (folder / CONFIG).is_file():
        raise _no_config_error(folder)
    _check_kind(folder, _read(folder / CONFIG))
    if (folder / INDEX).is_file():
        shards = set(_read(folder / INDEX).get("weight_map", {}).values())
        if absent := sorted(shard for shard in shards if not (folder / shard).is_file()):
            raise ModelError(
                "this model folder lacks some of the files that its weights are in",
                got=f"{folder}: {len(absent)} of {len(shards)} absent, among them {absent[0]}",
                expected=f"every file that {INDEX} names",
                remedy="fetch the model again",
            )


def _refuse_run(folder: Path) -> None:
    """Raise where a folder is of a run: what it holds are parameters of a policy, not a model's files."""
    folder = folder.resolve()
    if (folder / "state.json").is_file() and (folder / "trainable.safetensors").is_file():
        run = folder.parent.parent if folder.parent.name == "checkpoints" else "RUN"
        what = "a checkpoint of a run"
    elif folder.name == "checkpoints" and (folder / "last").is_file():
        what, run = "the checkpoints of a run", folder.parent
    elif (folder / "run.json").is_file() and (folder / "recipe.toml").is_file():
        what, run = "a run", folder
    else:
        return
    raise ModelError(
        f"this folder is {what}, not a model",
        got=folder,
        expected=EXPECTED,
        remedy=f"`truing export {run} --to FOLDER` writes one of the run's newest checkpoint; then"
        " model.name = FOLDER",
    )


def _adapter_error(folder: Path) -> ModelError:
    """An adapter says nothing without its base."""
    about = _read(folder / ADAPTER)
    return ModelError(
        "this folder is an adapter: without its base it is no model",
        got=f"{folder}: {about.get('peft_type', 'peft')} of {about.get('base_model_name_or_path')}",
        expected=EXPECTED,
        remedy="merge it: `truing export RUN --to FOLDER` without --adapter, where it is of a run of Truing;"
        " else merge_and_unload and save_pretrained of peft. Then model.name = FOLDER",
    )


def _no_config_error(folder: Path) -> ModelError:
    """What else the folder may be."""
    quantised = sorted(file.name for file in folder.glob("*.gguf"))
    if quantised:
        return ModelError(
            "this folder holds GGUF files, and a model is one of them",
            got=f"{folder}: {', '.join(quantised[:3])}",
            expected=EXPECTED,
            remedy=f'name the file: model.name = "{folder / quantised[0]}"',
        )
    held = sorted(file.name for file in folder.iterdir())
    return ModelError(
        "this folder is no model: it has no config.json",
        got=f"{folder}: {', '.join(held[:5]) or 'nothing'}",
        expected=EXPECTED,
        remedy="name the folder that holds config.json, or a hub id",
    )


def _check_kind(folder: Path, config: dict[str, Any]) -> None:
    """Raise where config.json is of weights that are no causal language model."""
    kind, classes = config.get("model_type"), config.get("architectures") or []
    if kind not in CONFIG_MAPPING_NAMES:
        raise _not_causal(folder, "this transformers knows no model of this type", kind)
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise _not_causal(folder, "transformers has no causal language model of this type", kind)
    if config.get("is_encoder_decoder"):
        raise _not_causal(folder, "this model reads with an encoder what its decoder answers", kind)
    if classes and all("For" in name and not LANGUAGE_MODEL.search(name) for name in classes):
        raise _not_causal(
            folder, "these weights are of a model for another task, not of a language model", classes[0]
        )


def _not_causal(folder: Path, what: str, got: object) -> ModelError:
    return ModelError(
        what,
        got=f"{folder}: {got}",
        expected="a decoder-only model, …ForCausalLM",
        remedy="name the language model that it was made from; docs/models.md lists the types",
    )


def _read(file: Path) -> dict[str, Any]:
    """A JSON file."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{file.name} of this model folder cannot be read", got=f"{file}: {error}", expected="JSON"
        ) from error
