"""Why a layer of the engine may compute with other weights than were published."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from truing.engines.vllm.expected_responses import Responses

Explain = Callable[[Mapping[str, Tensor], Responses, Sequence[str]], str]
"""From the engine's responses, the expected ones, and the wrong layers to a cause."""


def layer_error(found: Tensor, response: Tensor, size: Tensor, eps: float) -> float:
    """Return the largest difference in units of eps · Σ|W|; NaN counts as infinite."""
    if found.shape != response.shape:
        return float("inf")
    if not len(found):
        return 0.0
    error = ((found - response).abs() / (eps * size).clamp(min=1e-30)).max()
    return float(error.nan_to_num(nan=float("inf")))


def stale_cause(
    found: Mapping[str, Tensor],
    wrong: Sequence[str],
    earlier: Sequence[tuple[int, Responses]],
    eps: float,
    bound: float,
) -> str:
    """Return which earlier publication's weights the wrong layers have; "" if none's. The newest is first.

    Zeros are no stale weights, though a first adapter is zero too.
    """
    if not any(found[name].any() for name in wrong):
        return ""
    for age, (version, responses) in enumerate(earlier, start=1):
        if all(
            name in responses and layer_error(found[name], *responses[name], eps) <= bound for name in wrong
        ):
            return f"they are the weights of version {version}, {age} publication{'s' * (age > 1)} before"
    return ""


def base_cause(
    found: Mapping[str, Tensor], rounded: Responses, wrong: Sequence[str], eps: float, bound: float
) -> str:
    """Say how base weights differ; ``rounded`` are the responses of the trainer's weights in bfloat16."""
    if all(name in rounded and layer_error(found[name], *rounded[name], eps) <= bound for name in wrong):
        return "they are rounded to bfloat16, which loses small updates"
    return "they are of another model, or of a base that was changed after it was loaded"


def experts_cause(
    found: Mapping[str, Tensor], rounded: Responses, wrong: Sequence[str], eps: float, bound: float
) -> str:
    """Say how experts differ, where all other layers have the trainer's weights."""
    if all(name in rounded and layer_error(found[name], *rounded[name], eps) <= bound for name in wrong):
        return "they are rounded to bfloat16, which loses small updates"
    return "its experts alone differ, as if a reload had left them unpacked or out"


def adapter_cause(found: Mapping[str, Tensor], expected: Responses, wrong: Sequence[str]) -> str:
    """Say how an adapter differs."""
    if not any(found[name].any() for name in wrong):
        if len(wrong) == len(found):
            return "the adapter was never delivered, the engine holds zeros"
        return "their part of the adapter is missing, the engine holds zeros"
    values, target = (torch.cat(parts) for parts in _known(found, expected, wrong))
    if len(values) == len(target) and target.any():
        scale = float(values @ target / (target @ target))
        if torch.allclose(values, scale * target, rtol=1e-3, atol=1e-3 * float(target.abs().max())):
            return f"the adapter is scaled by {scale:.4g} times the declared alpha / rank"
    return "the engine holds another adapter"


def _known(
    found: Mapping[str, Tensor], expected: Responses, names: Sequence[str]
) -> tuple[list[Tensor], list[Tensor]]:
    return [found[name] for name in names], [expected[name][0] for name in names]
