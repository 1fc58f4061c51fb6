"""What a correct engine answers to a probe, in float64: the trainer's weights times a vector.

Also of the weights in formats of fewer bits, which an engine may hold instead.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers import PreTrainedModel

from truing.engines.vllm.worker.truing_vllm_worker import probe_vector
from truing.errors import ModelError
from truing.models.forward.score import causal_model
from truing.models.lora import adapted_layers

Cast = Callable[[Tensor], Tensor]
"""From a weight to what it has become, in any dtype that holds it."""

LARGEST_FLOAT8, LARGEST_INT8 = 448.0, 127.0
"""Largest number of float8 (e4m3), and of a symmetric int8."""

Responses = Mapping[str, tuple[Tensor, Tensor]]
"""By layer in the checkpoint: W r and Σ|W|, both [outputs].

Of an adapter B (A r) and |B| |A r|; of a norm or a bias its elements and their absolute values.
"""

STEEPEST = 1.2
"""Bound of the slopes of SiLU and GELU."""


@dataclass(frozen=True)
class Expected:
    """The trainer's responses; ``tied`` are layers whose weight another layer holds."""

    linear: Responses = field(default_factory=dict)
    vectors: Responses = field(default_factory=dict)
    experts: Responses = field(default_factory=dict)  # by layer, of all its experts
    tied: frozenset[str] = frozenset()
    down: Responses = field(default_factory=dict)  # A r of adapted layers
    delta: Responses = field(default_factory=dict)  # B (A r), with alpha / rank


def _factor(parts: nn.ModuleDict) -> Tensor:
    """Return a factor of the policy's adapter, in main memory."""
    weight = parts["default"].weight
    assert isinstance(weight, Tensor)
    return weight.detach().cpu()


@torch.no_grad()
def expected_responses(
    policy: nn.Module,
    cast: Cast,
    seed: int,
    base: Expected | None = None,
    *,
    layers: Collection[str] | None = None,
    merged: bool = False,
) -> Expected:
    """Return what a correct engine answers, its weights in a format.

    Args:
        policy: the weights.
        cast: to the format.
        seed: of the probe vectors.
        base: the responses of all weights but the adapter's, where they are known.
        layers: whose matrices or experts to compute, by name; by default all. Vectors are always.
        merged: whether the adapter is added to the weights of its layers, and is none besides.
    """
    adapted = adapted_layers(policy)
    if merged:
        return _base_responses(policy, cast, seed, layers, adapted)
    down, delta = {}, {}
    for name, layer in adapted.items():
        scale = layer.scaling["default"]
        a = cast(_factor(layer.lora_A)).double()
        b = (cast(_factor(layer.lora_B)) * scale).double()
        response = a @ probe_vector(a.shape[1], seed).double()
        down[name] = response, a.abs().sum(1)
        delta[name] = b @ response, b.abs() @ response.abs()
    return replace(base or _base_responses(policy, cast, seed, layers, {}), down=down, delta=delta)


def _base_responses(
    policy: nn.Module,
    cast: Cast,
    seed: int,
    layers: Collection[str] | None,
    merged: Mapping[str, LoraLayer],
) -> Expected:
    """Return the responses of all weights but the adapter's; that of ``merged`` layers is added to theirs."""
    model = causal_model(policy)
    tied = {
        name.removesuffix(".weight"): held.removesuffix(".weight")
        for name, held in model.all_tied_weights_keys.items()
    }
    chosen = layers and {*layers, *(held for name, held in tied.items() if name in layers)}
    linear, vectors = {}, {}
    for name, parameter in model.named_parameters():
        plain = name.replace(".base_layer", "").removesuffix(".weight")
        if "lora_" in name or (parameter.dim() == 2 and chosen is not None and plain not in chosen):
            continue
        held = parameter.detach().cpu()
        if plain in merged:
            layer: Any = merged[plain]  # of a kind that has this method, as all layers that can be merged
            held = held + layer.get_delta_weight("default").detach().cpu()
        weight = cast(held).double()
        if weight.dim() == 1:
            vectors[name.replace(".base_layer", "")] = weight, weight.abs()
        elif weight.dim() == 2:
            response = weight @ probe_vector(weight.shape[1], seed).double()
            linear[plain] = response, weight.abs().sum(1)
    linear |= {name: linear[held] for name, held in tied.items() if held in linear}
    experts = {
        name: expert_response(module, cast, seed)
        for name, module in expert_modules(model)
        if layers is None or name in layers
    }
    return Expected(linear, vectors, experts, frozenset(tied))


class Experts(NamedTuple):
    """The weights of one layer's experts."""

    gate: Tensor  # [E, inner, width]
    up: Tensor  # [E, inner, width]
    down: Tensor  # [E, width, inner]
    activation: Any


def expert_modules(model: PreTrainedModel) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that hold the weights of experts, by name.

    Raises:
        ModelError: A weight is neither a matrix, nor a vector, nor one of experts that can be proven.
    """
    for name, module in model.named_modules():
        wide = [each for each, weight in module.named_parameters(recurse=False) if weight.ndim > 2]
        if wide:
            _check_experts(name, module, wide)
            yield name, module


def expert_response(module: Any, cast: Cast, seed: int) -> tuple[Tensor, Tensor]:
    """Return the experts' answers to r and −r, summed, and the size of their rounding: both [E · width].

    For a vector r with a = W₁ r and b = W₃ r: W₂ (f(a) · b − f(−a) · b). Rounding of a and b is in proportion
    to Σ|W₁| and Σ|W₃|, and reaches the answer through the slopes of the product.
    """
    experts = _weights(module, cast)
    r = probe_vector(experts.gate.shape[2], seed).double()
    a, b = experts.gate @ r, experts.up @ r
    size_a, size_b = experts.gate.abs().sum(2), experts.up.abs().sum(2)
    response, size = torch.zeros_like(experts.down[:, :, 0]), torch.zeros_like(experts.down[:, :, 0])
    for sign in (1, -1):
        active = experts.activation(sign * a)
        product = active * (sign * b)
        moved = STEEPEST * b.abs() * size_a + active.abs() * size_b + 2 * product.abs()
        response += torch.einsum("ehi,ei->eh", experts.down, product)
        size += torch.einsum("ehi,ei->eh", experts.down.abs(), moved)
    return response.flatten(), size.flatten()


def _weights(module: Any, cast: Cast) -> Experts:
    joined, down = (
        cast(weight.detach().cpu()).double() for weight in (module.gate_up_proj, module.down_proj)
    )
    gate, up = joined.chunk(2, dim=1)
    return Experts(gate, up, down, module.act_fn)


def _check_experts(name: str, module: Any, wide: list[str]) -> None:
    """Raise unless weights of more than two dimensions are gated experts as vLLM's kernels compute them."""
    layout = {"has_gate": True, "is_concatenated": True, "is_transposed": False, "has_bias": False}
    found = {key: getattr(module, key, None) for key in layout}
    if sorted(wide) != ["down_proj", "gate_up_proj"] or found != layout:
        raise ModelError(
            "weights of this model cannot be compared with those that vLLM computes with",
            got=f"{name} ({type(module).__name__}: {', '.join(wide)})",
            expected="matrices, vectors, and gated experts without biases",
            remedy='engine.kind = "local"',
        )


def as_dtype(dtype: torch.dtype) -> Cast:
    """Return the cast to a dtype."""
    return lambda weight: weight.to(dtype)


def _by_way_of(dtype: torch.dtype) -> Cast:
    return lambda weight: weight.to(dtype).float()


def _float8(weight: Tensor, over: tuple[int, ...]) -> Tensor:
    """Quantize with a scale for all numbers along some dimensions."""
    scale = weight.float().abs().amax(over, keepdim=True).clamp(min=1e-12) / LARGEST_FLOAT8
    return (weight / scale).to(torch.float8_e4m3fn).float() * scale


def _int8(weight: Tensor, inputs: int = 0) -> Tensor:
    """Quantize with a scale for so many inputs of an output, by default all; others are left as they are."""
    width = weight.shape[-1]
    if inputs and width % inputs:
        return weight
    groups = weight.float().unflatten(-1, (-1, inputs or width))
    scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-12) / LARGEST_INT8
    return ((groups / scale).round() * scale).flatten(-2)


def _by_tensor(weight: Tensor) -> Tensor:
    return _float8(weight, tuple(range(max(0, weight.dim() - 2), weight.dim())))


FORMATS: Mapping[str, Cast] = {
    "rounded to bfloat16, which loses small updates": _by_way_of(torch.bfloat16),
    "rounded to float16": _by_way_of(torch.float16),
    "rounded to float8": _by_way_of(torch.float8_e4m3fn),
    "quantized to float8, with a scale for each tensor": _by_tensor,
    "quantized to float8, with a scale for each row": partial(_float8, over=(-1,)),
    "quantized to int8, with a scale for each row": _int8,
    "quantized to int8, with a scale for 32 inputs": partial(_int8, inputs=32),
}
"""By what weights are in it, in words."""
