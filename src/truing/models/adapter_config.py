"""The config of a saved adapter: a plain low-rank adapter of peft, or an error that names what else it is."""

import math
import re
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from peft import LoraConfig, __version__

from truing.errors import ModelError
from truing.models.folder_check import refuse_run
from truing.models.foreign_code import read_json, refuse_links
from truing.utils.parse import parse_json
from truing.utils.regular_files import read_regular_text

CONFIG, TOKENIZER = "adapter_config.json", "tokenizer_config.json"

REQUIRED = ("r", "lora_alpha", "target_modules")
"""Without these, peft would use a default of its own."""

PASSED = {
    *REQUIRED,
    *("use_rslora", "rank_pattern", "alpha_pattern"),
    *("exclude_modules", "layers_to_transform", "layers_pattern", "fan_in_fan_out"),
    *("lora_dropout", "base_model_name_or_path", "revision"),
}
"""Keys that say what the adapter computes, how it was trained, and beside which base."""

UNUSED = {
    *("peft_type", "task_type", "peft_version", "auto_mapping", "inference_mode", "init_lora_weights"),
    *("eva_config", "megatron_core", "qalora_group_size", "runtime_config"),
}
"""Keys that do not change what a saved adapter computes; any other key must be off."""

UNCHANGED_BASE = (True, False, "gaussian", "eva", "orthogonal")
"""Initializations that leave the base as it was."""

MERGE = (
    "merge it with peft's merge_and_unload and save_pretrained, set model.name to that folder, and train a"
    " new adapter"
)


def read_config(folder: str | Path) -> LoraConfig:
    """Return the config of the adapter in a folder; raise if it is not a plain low-rank adapter."""
    folder = Path(folder).expanduser()
    table = _read_table(folder)
    if str(table.get("peft_type")).upper() != "LORA" or table.get("task_type") not in (None, "CAUSAL_LM"):
        raise ModelError(
            "this adapter is not a low-rank adapter of a causal language model",
            got=f"{folder}: peft_type {table.get('peft_type')}, task_type {table.get('task_type')}",
            expected="peft_type LORA, task_type CAUSAL_LM",
            remedy=MERGE,
        )
    _refuse_other_functions(folder, table)
    if missing := [key for key in REQUIRED if table.get(key) is None]:
        raise ModelError(
            "the adapter's config does not define the adapter",
            got=f"{folder / CONFIG} without {', '.join(missing)}",
            expected=", ".join(REQUIRED),
            remedy="copy the adapter_config.json that belongs to these weights",
        )
    _check_types(folder, table)
    values = {key: table[key] for key in table.keys() & PASSED if table[key] is not None}
    try:
        # the weights are loaded, so none is drawn; and they are trained
        return LoraConfig(**values, task_type="CAUSAL_LM", inference_mode=False)
    except (ValueError, TypeError) as error:
        raise ModelError(
            "peft cannot read this adapter's config", got=f"{folder / CONFIG}: {error}", remedy=MERGE
        ) from error


def _check_types(folder: Path, table: dict[str, Any]) -> None:
    """Raise unless ranks and alphas are numbers above 0, and layers are named by texts."""

    def is_rank(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value > 0

    def is_alpha(value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf

    def is_table(value: object, of: Callable[[object], bool]) -> bool:
        return isinstance(value, dict) and all(map(of, value.values()))

    def is_named(value: object) -> bool:
        return isinstance(value, str) or (isinstance(value, list) and all(isinstance(x, str) for x in value))

    checks = {
        "r": (is_rank, "a whole number above 0"),
        "lora_alpha": (is_alpha, "a number above 0"),
        "rank_pattern": (partial(is_table, of=is_rank), "whole numbers above 0 by layer"),
        "alpha_pattern": (partial(is_table, of=is_alpha), "numbers above 0 by layer"),
        "target_modules": (is_named, "names of layers, or a regular expression"),
        "exclude_modules": (is_named, "names of layers, or a regular expression"),
    }
    for key, (is_valid, expected) in checks.items():
        value = table.get(key)
        if value is not None and not is_valid(value):
            raise ModelError(
                "the adapter's config has a value that defines no adapter",
                got=f"{folder / CONFIG}: {key} {value!r}",
                expected=expected,
                remedy="copy the adapter_config.json that belongs to these weights",
            )


def saved_template(folder: str | Path) -> str | None:
    """Return the chat template that was saved beside an adapter; None if there is none."""
    file, table = Path(folder).expanduser() / "chat_template.jinja", Path(folder).expanduser() / TOKENIZER
    if file.is_file():
        return _template_text(file)
    if table.is_file():
        return read_json(table).get("chat_template")
    return None


def _template_text(file: Path) -> str:
    refuse_links(file.parent)
    try:
        return read_regular_text(file)
    except (OSError, UnicodeDecodeError) as error:
        what = "the chat template of this adapter cannot be read"
        raise ModelError(what, got=f"{file}: {error}") from error


def _read_table(folder: Path) -> dict[str, Any]:
    """Return the JSON of an adapter's config."""
    if not folder.is_dir():
        raise ModelError(
            "lora.adapter names no folder",
            got=folder.absolute(),
            expected=f"a folder with {CONFIG} and adapter_model.safetensors",
            remedy="check the path; a run that resumes needs the folder that it started from",
        )
    refuse_run(folder, for_adapter=True)
    refuse_links(folder)
    file = folder / CONFIG
    try:
        return dict(parse_json(read_regular_text(file)))
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(
            "lora.adapter is not the folder of an adapter",
            got=f"{file}: {error}",
            expected=f"a folder with {CONFIG} and adapter_model.safetensors",
            remedy="`truing export RUN --adapter --to FOLDER` and peft's save_pretrained write one",
        ) from error


def _refuse_other_functions(folder: Path, table: dict[str, Any]) -> None:
    """Raise if the config turns something on that is not a plain product B·A beside an unchanged base."""
    init = table.get("init_lora_weights", True)
    if init not in UNCHANGED_BASE:
        raise ModelError(
            "the initialization of this adapter changed its base",
            got=f"{folder / CONFIG}: init_lora_weights {init!r}",
            expected=f"one of {', '.join(map(repr, UNCHANGED_BASE))}",
            remedy="save it again with peft's path_initial_model_for_weight_conversion, which makes it an"
            f" adapter of the original base; or {MERGE}",
        )
    off = {field.name: getattr(LoraConfig(), field.name) for field in fields(LoraConfig)}
    others = {
        key: value
        for key, value in table.items()
        if key not in PASSED | UNUSED and value != off.get(key) and value not in (None, False, [], {})
    }
    if others:
        values = ", ".join(f"{key} {value!r}" for key, value in others.items())
        saved_by = f", saved by peft {table['peft_version']}" if table.get("peft_version") else ""
        raise ModelError(
            "this adapter computes more than base + B·A, or trains other weights too",
            got=f"{folder / CONFIG}: {values}{saved_by}",
            expected=f"these off (peft {__version__})",
            remedy=MERGE,
        )


def declared_scale(config: LoraConfig, layer: str, rank: int) -> float:
    """Return the factor of B·A in a layer.

    Args:
        config: of the adapter.
        layer: its name in the plain model.
        rank: of its A.
    """
    alphas = config.alpha_pattern or {}
    patterns = [key for key in alphas if re.match(rf"(.*\.)?({key})$", layer)]
    alpha = alphas[patterns[0]] if patterns else config.lora_alpha
    return alpha / (math.sqrt(rank) if config.use_rslora else rank)


def largest_rank(config: LoraConfig) -> int:
    """Return the largest rank of an adapter's layers."""
    return max([config.r, *(config.rank_pattern or {}).values()])
