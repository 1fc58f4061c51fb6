"""The check that one layer of the sampler has base + adapter of the policy."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from truing.config import Recipe
from truing.distributed.sharded_tensors import whole
from truing.doctor.oracle.nf4 import nf4_weight
from truing.engines.local.engine import LocalEngine
from truing.measurements.measurement import Measurement
from truing.models.adapter_config import declared_scale
from truing.models.forward.score import causal_model
from truing.models.quantized_linear import QuantizedLinear, plain_weight
from truing.types.sample import Sample
from truing.types.weight_facts import Sync


class SamplerLayer(Measurement):
    """One layer of the local sampler beside base + adapter of the policy; another layer each time."""

    facts = ("sync",)
    cost = "one layer's weights"
    audit = "weights"

    def before_optimizer_steps(self, minibatch: Sequence[Sample]) -> None:
        """Compare the layer; another engine proves each publication itself."""
        step, engine = self.step, self.step.sampler.engine
        adapted = step.recipe.lora and step.learner.algorithm.source == "rollouts"
        if adapted and isinstance(engine, LocalEngine):
            fact = sync_fact(step.learner.model, engine.model, step.recipe, step.step_index)
            self.found = {"sync": fact}


def sync_fact(policy: nn.Module, sampler_model: nn.Module, recipe: Recipe, step_index: int) -> Sync:
    """Compare one layer of the sampler with base + adapter of the policy."""
    layers = {
        name: module for name, module in causal_model(policy).named_modules() if hasattr(module, "lora_A")
    }
    name = sorted(layers)[step_index % len(layers)]
    expected = _merged(layers[name], declared_scale_of(policy, recipe, name), _oracle_weight)
    sampler_layer = sampler_model.get_submodule(name)
    beside = hasattr(sampler_layer, "lora_A")  # the adapter computes beside the base, by its own scale
    got = (
        _merged(sampler_layer, None, plain_weight)
        if beside
        else cast("Tensor", sampler_layer.weight).detach()
    )
    return {
        "layer": name,
        "largest": float((got.double().to(expected.device) - expected).abs().max()),
        "scale": float(expected.abs().max()),
        "eps": torch.finfo(torch.float32 if beside else got.dtype).eps,
    }


def declared_scale_of(policy: Any, recipe: Recipe, layer: str) -> float:
    """Return the factor of B A in a layer: by the recipe, or by the config of the adapter it starts from."""
    lora = recipe.lora
    assert lora
    if lora.adapter is None:
        assert lora.alpha
        assert lora.rank
        return lora.alpha / lora.rank
    rank = policy.get_submodule(f"base_model.model.{layer}").lora_A["default"].weight.shape[0]
    return declared_scale(policy.peft_config["default"], layer, rank)


def _merged(layer: Any, scale: float | None, weight_of: Callable[[nn.Module], Tensor]) -> Tensor:
    """Return base + scale · B A of an adapted layer, as its weight is: float64; its own scale without one."""
    down, up = (whole(part["default"].weight.detach()).double() for part in (layer.lora_A, layer.lora_B))
    base = weight_of(layer.get_base_layer()).double()
    product = (up @ down).T if layer.fan_in_fan_out else up @ down  # GPT-2 holds weights [in, out]
    return base + (layer.scaling["default"] if scale is None else scale) * product


def _oracle_weight(layer: nn.Module) -> Tensor:
    """Return the weight of a base layer; of a quantized one as the oracle dequantizes it."""
    if not isinstance(layer, QuantizedLinear):
        return plain_weight(layer)
    packed, absmax = (whole(part.detach()) for part in (layer.weight, layer.absmax))
    return nf4_weight(packed, absmax, layer.in_features, layer.dtype)
