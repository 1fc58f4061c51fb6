"""Weights on disk that an engine may hold: a model by name, a folder, or BASE+ADAPTER."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn

from truing.engines.vllm.sent_weights import changed_elements
from truing.models.forward.score import causal_model
from truing.models.load import LoadedModel, load
from truing.models.saved_adapter import add_saved_adapter, read_adapter


def load_candidate(where: str) -> tuple[LoadedModel, nn.Module]:
    """Load a folder of weights, or BASE+ADAPTER, in float32 on the CPU."""
    base, _, adapter = where.partition("+")
    loaded = load(base, device="cpu")
    if not adapter:
        return loaded, loaded.model
    return loaded, add_saved_adapter(loaded, read_adapter(adapter), dropout=0.0).eval()


def merged(policy: nn.Module) -> nn.Module:
    """Return a policy with its adapter merged into its weights; one without an adapter as it is."""
    if not isinstance(policy, PeftModel):
        return policy
    whole: Any = policy.merge_and_unload()
    return whole


@torch.no_grad()
def surviving_share(policy: nn.Module, other: nn.Module, dtype: torch.dtype) -> float:
    """Return the share of elements that differ from another candidate's and still do in a dtype.

    NaN if none differ. What one of them alone has, as an adapter, is compared with zeros.
    """
    changed = survived = 0
    for weight, was in _pairs(policy, other):
        differ, remain = changed_elements(was, weight, dtype)
        changed, survived = changed + differ, survived + remain
    return survived / changed if changed else math.nan


def _pairs(policy: nn.Module, other: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    held = dict(_plain_names(other))
    for name, weight in _plain_names(policy):
        was = held.get(name)
        if was is not None and was.shape == weight.shape:
            yield weight, was
        elif was is None and "lora_B" in name:
            yield weight, torch.zeros_like(weight)


def _plain_names(policy: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, weight in causal_model(policy).named_parameters():
        yield name.replace(".base_layer", ""), weight
