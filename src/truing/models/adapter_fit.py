"""Whether an adapter fits a model: its targets match, and its layers can be merged for the sampler."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import cast

from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers import PreTrainedModel

from truing.errors import ModelError
from truing.utils.format import did_you_mean

Layers = Sequence[tuple[str, LoraLayer]]
"""The adapted layers, with their paths."""


class UnfitAdapterError(ModelError):
    """Raised if an adapter names layers that a model does not have."""


def check_targets(model: nn.Module, targets: Sequence[str]) -> None:
    """Raise unless each target is the path of a layer, or the end of one, as peft matches a list."""
    paths = [f".{path}" for path, _ in model.named_modules() if path]
    missing = [target for target in targets if not any(path.endswith(f".{target}") for path in paths)]
    if missing:
        linear = last_names(linear_paths(model))
        remedies = [
            did_you_mean(target.rsplit(".", 1)[-1], linear)
            if re.fullmatch(r"[\w.]*", target)
            else f"give {target!r} alone, as a text: a list has names of layers"
            for target in missing
        ]
        raise UnfitAdapterError(
            "the adapter has targets that match no layer of this model",
            got=f"lora.targets (target_modules of a peft_config): {', '.join(map(repr, missing))}",
            expected=f'the names of layers: {", ".join(linear)}; or "all-linear"',
            remedy=" ".join(dict.fromkeys(filter(None, remedies))),
        )


def linear_paths(model: nn.Module) -> list[str]:
    """Return the paths of the linear layers."""
    return [path for path, part in model.named_modules() if isinstance(part, nn.Linear)]


def last_names(paths: Iterable[str]) -> list[str]:
    """Return module names as ``lora.targets`` uses them: the last part of each path."""
    return sorted({path.rsplit(".", 1)[-1] for path in paths})


def check_fit(policy: PeftModel, model: PreTrainedModel, linear: Sequence[str], source: str) -> None:
    """Raise unless the adapted layers are linear, and each can be merged by itself.

    Args:
        policy: with the adapter.
        model: the same without its wrapper.
        linear: paths of the linear layers that it had before.
        source: where errors say that the adapter comes from.
    """
    layers = [(name, layer) for name, layer in policy.named_modules() if isinstance(layer, LoraLayer)]
    _refuse_experts(layers, linear, source)
    _refuse_embeddings(layers, source)
    _refuse_tied(model, source)
    _refuse_shared(layers)


def _refuse_experts(layers: Layers, linear: Sequence[str], source: str) -> None:
    """Raise if peft adapts something other than a linear layer: experts in one three-dimensional weight.

    The sampler's weights are merged layer by layer, which such a weight does not allow.
    """
    attention, known = last_names(x for x in linear if "attn" in x or "attention" in x), last_names(linear)
    for name, layer in layers:
        base = layer.get_base_layer()
        if not isinstance(getattr(base, "weight", None), Tensor):
            tables = [each for each, weight in base.named_parameters(recurse=False) if weight.ndim > 2]
            raise ModelError(
                "the adapter changes experts stored in one weight, which adapters cannot change here",
                got=f"{source}: {name} ({type(base).__name__}: {', '.join(tables)})",
                expected=f"linear layers: {', '.join(known)}",
                remedy=f"lora.targets = {json.dumps(attention or known)}, or lora = false",
            )


def _refuse_embeddings(layers: Layers, source: str) -> None:
    """Raise if the adapter changes an embedding: it has no weight A or B that a product is computed of."""
    for name, layer in layers:
        if isinstance(layer.get_base_layer(), nn.Embedding):
            raise ModelError(
                "the adapter changes an embedding",
                got=f"{source}: {name.removeprefix('base_model.model.')}",
                expected="linear layers",
                remedy='lora.targets = "all-linear"',
            )


def is_on_tied_weight(model: PreTrainedModel) -> bool:
    """Return whether an adapter changes an embedding, or an output head, that are one weight."""
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    return model.config.get_text_config().tie_word_embeddings and any(
        isinstance(end, LoraLayer) for end in ends
    )


def _refuse_tied(model: PreTrainedModel, source: str) -> None:
    """Raise if the adapter changes an embedding tied to the output head: it could not be merged."""
    if is_on_tied_weight(model):
        raise ModelError(
            "the adapter changes an embedding that is tied to the output head",
            got=source,
            expected="linear layers inside the model",
            remedy='lora.targets = "all-linear"',
        )


def _refuse_shared(layers: Layers) -> None:
    """Raise if two adapted layers share a weight: the sampler has one merged copy of it."""
    owners: dict[tuple[int, int], str] = {}
    for name, layer in layers:
        weight = cast(Tensor, layer.get_base_layer().weight)  # declared as any attribute of a module
        # without data on the meta device, so not its address
        place = (weight.untyped_storage()._cdata, int(weight.storage_offset()))
        other = owners.setdefault(place, name)
        if other != name:
            raise ModelError(
                "two adapted layers share one weight, so their adapters cannot be merged",
                got=f"{other} and {name}",
                expected="a separate weight for each layer",
                remedy="list the layers to adapt in lora.targets, without these two",
            )
