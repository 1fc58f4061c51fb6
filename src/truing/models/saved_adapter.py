"""An adapter in a folder, as peft or ``truing export --adapter`` wrote it, as the start of a policy."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from peft import LoraConfig, PeftModel
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from truing.errors import ModelError, RecipeError
from truing.models.adapter_config import CONFIG, MERGE, declared_scale, read_config
from truing.models.adapter_fit import UnfitAdapterError, is_on_tied_weight
from truing.models.adapter_patterns import without_patterns
from truing.models.digest import base_digest
from truing.models.finite_check import check_finite
from truing.models.load import LoadedModel
from truing.models.lora import POLICY, adapted_layers, trainable_parameters, wrap
from truing.models.quantized_linear import quantization_of
from truing.utils.parse import parse_json
from truing.utils.regular_files import read_regular_text

WEIGHTS, PICKLE, BASE = "adapter_model.safetensors", "adapter_model.bin", "base.json"
"""``BASE`` is written by ``truing export``: digest and quantization of the model that was trained on."""

FIT = (
    "set model.name to the model of this adapter, or copy the adapter_config.json that belongs to its weights"
)

UNTIE = (
    "peft would merge it into embedding and head, which are one weight. First set tie_word_embeddings = False"
    f" in the model's config, and give the head a copy of the weight; then {MERGE}"
)

SHOWN = 3


@dataclass(frozen=True, eq=False)
class SavedAdapter:
    """A plain low-rank adapter: its config, its weights by the names of the file, and its base's digest."""

    folder: Path
    config: LoraConfig
    weights: dict[str, Tensor]
    base_digest: str  # "" if the folder does not have it
    base_quantization: str | None = None


def read_adapter(folder: str | Path) -> SavedAdapter:
    """Read the adapter in a folder; raise if it is not a plain low-rank one, or not finite."""
    folder = Path(folder).expanduser()
    config, file = read_config(folder), folder / WEIGHTS
    if not file.is_file() and (folder / PICKLE).is_file():
        raise ModelError(
            "this adapter is a pickle, which runs code when it is read",
            got=folder / PICKLE,
            expected=WEIGHTS,
            remedy="load it with peft where you trust it, and save it again: safetensors is peft's default",
        )
    try:
        weights = load_file(file)
        base = dict(parse_json(read_regular_text(folder / BASE))) if has_base(folder) else {}
    except (OSError, ValueError, TypeError, SafetensorError) as error:
        raise ModelError(
            "the files of this adapter cannot be read",
            got=f"{folder}: {error}",
            expected=f"{CONFIG} and {WEIGHTS}",
            remedy="copy or export the adapter again",
        ) from error
    check_finite(
        weights,
        "this adapter has weights that are not finite",
        file,
        remedy="the training that wrote it diverged: use an earlier checkpoint of it",
    )
    return SavedAdapter(folder, config, weights, base.get("digest", ""), base.get("quantization"))


def has_base(folder: str | Path) -> bool:
    """Return whether the folder of an adapter records the base that it was trained on."""
    return (Path(folder).expanduser() / BASE).exists()


def write_base(policy: PeftModel, folder: Path) -> None:
    """Write the digest and the quantization of an adapter's base into its folder."""
    base = {"digest": base_digest(policy), "quantization": quantization_of(policy)}
    (folder / BASE).write_text(json.dumps(base), encoding="utf-8")


def add_saved_adapter(
    loaded: LoadedModel,
    saved: SavedAdapter,
    *,
    dropout: float,
    rank: int | None = None,
    alpha: float | None = None,
    targets: str | Sequence[str] | None = None,
) -> PeftModel:
    """Wrap a model in a saved adapter, trainable and in fp32; its own weights are frozen.

    Args:
        loaded: peft changes its model in place: its linear layers become adapted layers.
        saved: the adapter; raises unless it belongs to the model and fits it.
        dropout: share of the adapter's input dropped in training mode.
        rank: as a recipe declares it; raises if the adapter has another. None is not declared.
        alpha: likewise.
        targets: likewise, the layers to adapt.
    """
    _check_base(loaded, saved)
    _check_declared(saved, "rank", rank, saved.config.r)
    _check_declared(saved, "alpha", alpha, saved.config.lora_alpha)
    layers = None if targets is None else _declared_layers(targets, loaded.model)
    policy = wrap_as_saved(loaded.model, saved.folder, replace(saved.config, lora_dropout=dropout))
    if layers is not None:
        _check_layers(saved, policy, layers)
    _check_scales(policy)
    trained = trainable_parameters(policy)  # whose names have that of the adapter, unlike its file's
    parameters = {name.replace(f".{POLICY}.", "."): each for name, each in trained.items()}
    _check_tensors(saved, parameters)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(saved.weights[name])
    return policy


def _check_declared(saved: SavedAdapter, key: str, declared: object, own: object) -> None:
    """Raise if a recipe declares something else than the adapter has."""
    if declared not in (None, own):
        raise RecipeError(
            f"lora.{key} is not that of the adapter to start from",
            got=declared,
            expected=f"{own}, of {saved.folder}",
            remedy=f"leave lora.{key} out: it comes from lora.adapter",
        )


def _declared_layers(targets: str | Sequence[str], model: PreTrainedModel) -> set[str]:
    """Return the linear layers that a recipe's targets name."""
    head = model.get_output_embeddings()
    linear = {name: part for name, part in model.named_modules() if isinstance(part, nn.Linear | Conv1D)}
    if targets == "all-linear":
        return {name for name, part in linear.items() if part is not head}
    if isinstance(targets, str):
        return {name for name in linear if re.fullmatch(targets, name)}
    return {name for name in linear if any(f".{name}".endswith(f".{each}") for each in targets)}


def _check_layers(saved: SavedAdapter, policy: PeftModel, declared: set[str]) -> None:
    """Raise if a recipe declares other layers than the adapter has."""
    own = adapted_layers(policy).keys()
    if declared != own:
        differing = sorted(declared ^ own)
        raise RecipeError(
            "lora.targets are not the layers of the adapter to start from",
            got=f"{len(declared)} layers; {len(differing)} are in one alone: {', '.join(differing[:SHOWN])}",
            expected=f"the {len(own)} layers of {saved.folder}",
            remedy="leave lora.targets out: they come from lora.adapter",
        )


def wrap_as_saved(model: PreTrainedModel, folder: Path, config: LoraConfig) -> PeftModel:
    """Wrap a model in an adapter of a saved config, with new weights."""
    named = without_patterns(config, model, folder)
    unnamed = replace(named, base_model_name_or_path=None)  # peft names it, and would warn of another name
    try:
        return wrap(model, unnamed, source=str(folder))
    except UnfitAdapterError as error:
        raise ModelError(error.what, got=error.got, expected=error.expected, remedy=FIT) from error
    except ModelError as error:  # which advises to change the recipe
        remedy = UNTIE if is_on_tied_weight(model) else MERGE
        raise ModelError(error.what, got=error.got, expected=error.expected, remedy=remedy) from error


def _check_base(loaded: LoadedModel, saved: SavedAdapter) -> None:
    """Raise if the adapter was trained on another model: by the digest that its folder has, or by name."""
    if saved.base_digest:
        if (kind := quantization_of(loaded.model)) != saved.base_quantization:
            declared = saved.base_quantization
            raise ModelError(
                "the adapter was trained on a base that is quantized otherwise, which is another model",
                got=f"model.quantization: {kind or 'none'}",
                expected=f"{declared or 'none'}, of {saved.folder / BASE}",
                remedy=f'set model.quantization = "{declared}"'
                if declared
                else "leave model.quantization out",
            )
        if (own := base_digest(loaded.model)) != saved.base_digest:
            raise ModelError(
                "the adapter was trained on other weights than model.name",
                got=f"{loaded.path}: digest {own}",
                expected=f"digest {saved.base_digest}, of {saved.folder / BASE}",
                remedy="set model.name to the model that the adapter was trained on"
                + (
                    ", and model.dtype as it was there: it rounds a base before it is quantized"
                    if kind
                    else ""
                ),
            )
        return
    name = saved.config.base_model_name_or_path
    if name and name != loaded.name and Path(name).expanduser().resolve() != loaded.path.resolve():
        raise ModelError(
            "the adapter was trained on another model than model.name",
            got=f"model.name = {loaded.name!r}",
            expected=f"{name!r}, of {saved.folder / CONFIG}",
            remedy="set model.name to that model; if both are the same weights, change"
            " base_model_name_or_path there",
        )


def _check_scales(policy: PeftModel) -> None:
    """Raise if peft multiplies B·A by another factor than the config declares."""
    config = cast(LoraConfig, policy.peft_config[POLICY])
    for name, layer in adapted_layers(policy).items():
        scale = declared_scale(config, name, cast(nn.Linear, layer.lora_A[POLICY]).weight.shape[0])
        if layer.scaling[POLICY] != scale:
            raise ModelError(
                f"peft scales the adapter of {name} otherwise than its config says",
                got=layer.scaling[POLICY],
                expected=scale,
                remedy="install another version of peft",
            )


def _check_tensors(saved: SavedAdapter, parameters: dict[str, nn.Parameter]) -> None:
    """Raise unless the file has each weight of the adapter, in its shape, and nothing else."""
    shapes = {name: tuple(each.shape) for name, each in parameters.items()}
    found = {name: tuple(each.shape) for name, each in saved.weights.items()}
    absent, extra = sorted(shapes.keys() - found.keys()), sorted(found.keys() - shapes.keys())
    other = [
        f"{name} {found[name]}, not {shapes[name]}"
        for name in sorted(shapes.keys() & found.keys())
        if found[name] != shapes[name]
    ]
    counts = {"missing": absent, "not of this adapter": extra, "of another shape": other}
    if wrong := {kind: names for kind, names in counts.items() if names}:
        text = "; ".join(f"{len(names)} {kind}: {', '.join(names[:SHOWN])}" for kind, names in wrong.items())
        raise ModelError(
            "the weights of this adapter do not fit its config and the model",
            got=f"{saved.folder / WEIGHTS}: {text}",
            expected=f"the {len(shapes)} tensors of {CONFIG} on this model",
            remedy="set model.name to its base; whole weights beside an adapter, such as embeddings, must be"
            " merged with peft's merge_and_unload",
        )
