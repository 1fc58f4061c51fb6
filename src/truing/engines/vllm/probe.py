"""Compare what the engine computes with, layer by layer, with the trainer's weights.

The engine sends its layers' responses to a vector r of ±1 (``worker/truing_vllm_worker.py``). The trainer
computes W r in float64, and the difference is measured in units of eps · Σ|W|, the rounding of one output.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from truing.engines.vllm.sent_weights import adapted_layers
from truing.engines.vllm.worker.truing_vllm_worker import probe_vector
from truing.errors import EngineError, PublicationError
from truing.models.forward.score import causal_model

BOUND = 8.0
"""Units of eps · Σ|W| that rounding explains. Healthy layers stay below 2.2; one element of a 576-wide layer
that is off by 1e-3 gives 9.9."""


@dataclass
class Expected:
    """The trainer's responses: by layer in the checkpoint, W r and Σ|W| in float64, both [outputs]."""

    linear: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    vectors: dict[str, Tensor] = field(default_factory=dict)
    delta: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)


@torch.no_grad()
def expected_responses(policy: nn.Module, dtype: torch.dtype, seed: int, *, with_base: bool) -> Expected:
    """Return what a correct engine answers, its weights cast to ``dtype``."""
    expected = Expected()
    for name, layer in adapted_layers(policy).items():
        scale = layer.scaling["default"]
        down = layer.lora_A["default"].weight.detach().cpu().to(dtype).double()
        up = (layer.lora_B["default"].weight.detach().cpu().to(dtype) * scale).double()
        response = up @ (down @ probe_vector(down.shape[1], seed).double())
        expected.delta[name] = response, up.abs() @ down.abs().sum(1)
    if with_base:
        for name, parameter in causal_model(policy).named_parameters():
            if "lora_" in name:
                continue
            weight = parameter.detach().cpu().to(dtype).double()
            plain = name.replace(".base_layer", "")
            if weight.dim() == 1:
                expected.vectors[plain] = weight
            elif weight.dim() == 2:
                response = weight @ probe_vector(weight.shape[1], seed).double()
                expected.linear[plain.removesuffix(".weight")] = response, weight.abs().sum(1)
    return expected


def compare(
    probe: Mapping[str, Any], expected: Expected, dtype: torch.dtype, previous: Expected | None
) -> dict[str, Any]:
    """Return the receipt: how many layers agree, and by how much the worst one differs.

    Args:
        probe: the engine's answer.
        expected: the trainer's responses.
        dtype: of the engine.
        previous: the responses of the publication before, to recognise stale layers.

    Raises:
        PublicationError: A layer computes with other weights, or has no adapter or another one.
    """
    eps = torch.finfo(dtype).eps
    receipt: dict[str, Any] = {}
    before = previous or Expected()
    if expected.linear:
        receipt["linear"] = _compare_layers(
            _by_part(probe["linear"], expected.linear, "weights"),
            expected.linear,
            before.linear,
            eps,
            _foreign,
        )
        tables = {name: _decoded(text) for name, text in probe["tables"].items() if name in expected.linear}
        receipt["tables"] = _compare_layers(tables, expected.linear, before.linear, eps, _foreign)
        receipt["vectors"] = _compare_vectors(probe["vectors"], expected.vectors)
    if expected.delta:
        receipt["delta"] = _compare_layers(
            _by_part(probe["delta"], expected.delta, "adapter"), expected.delta, before.delta, eps, _misloaded
        )
    return receipt


def _by_part(
    fused: Mapping[str, tuple[Sequence[str], str]], expected: Mapping[str, tuple[Tensor, Tensor]], what: str
) -> dict[str, Tensor]:
    """Split the responses of fused layers into those of the checkpoint's layers."""
    found: dict[str, Tensor] = {}
    for names, text in fused.values():
        values, start = _decoded(text), 0
        for name in names:
            if name in expected:
                length = len(expected[name][0])
                found[name] = values[start : start + length]
                start += length
    if missing := sorted(expected.keys() - found.keys() - {"lm_head"}):
        raise PublicationError(
            f"the engine has no {what} for {len(missing)} of {len(expected)} layers",
            got=f"none for {', '.join(missing[:3])}",
            expected=f"{what} for each layer that the trainer has",
            remedy="the engine did not load what was published; its log says which names it skipped",
        )
    return found


Explain = Callable[[Tensor, Tensor], str]


def _compare_layers(
    found: Mapping[str, Tensor],
    expected: Mapping[str, tuple[Tensor, Tensor]],
    previous: Mapping[str, tuple[Tensor, Tensor]],
    eps: float,
    explain: Explain,
) -> dict[str, Any]:
    """Return the worst difference, in units of eps · Σ|W|, and its layer; raise if it is beyond rounding."""
    errors = {name: _error(found[name], *expected[name], eps) for name in found}
    wrong = [name for name, error in errors.items() if not error <= BOUND]
    worst = max(errors, key=lambda name: errors[name])
    if not wrong:
        return {"layers": len(errors), "largest": round(errors[worst], 3), "layer": worst}
    stale = [
        name for name in wrong if name in previous and _error(found[name], *previous[name], eps) <= BOUND
    ]
    if len(stale) == len(wrong):
        cause = "they are the weights of the publication before"
    else:
        cause = explain(found[wrong[0]], expected[wrong[0]][0])
    raise PublicationError(
        f"the engine computes with other weights than were published in {len(wrong)} of {len(errors)} layers:"
        f" {cause}",
        got=f"{wrong[0]} differs by up to {errors[wrong[0]]:.3g} roundings",
        expected=f"at most {BOUND:g}: {', '.join(wrong[:3])} to compute with the trainer's weights",
        remedy="nothing was sampled with them: restart the engine, then `truing train --resume`",
    )


def _error(found: Tensor, response: Tensor, size: Tensor, eps: float) -> float:
    """Return the largest difference in units of eps · Σ|W|; NaN counts as infinite."""
    if found.shape != response.shape:
        return float("inf")
    error = ((found - response).abs() / (eps * size).clamp(min=1e-30)).max()
    return float(error.nan_to_num(nan=float("inf")))


def _foreign(found: Tensor, expected: Tensor) -> str:
    """Say how base weights differ."""
    return "they are of another model, or of another version"


def _misloaded(found: Tensor, expected: Tensor) -> str:
    """Say how an adapter differs."""
    if found.shape == expected.shape and not found.any():
        return "the adapter was never delivered, the engine holds zeros"
    if found.shape == expected.shape and expected.any():
        scale = float(found @ expected / (expected @ expected))
        if torch.allclose(found, scale * expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max())):
            return f"the adapter is scaled by {scale:.4g} times the declared alpha / rank"
    return "the engine holds another adapter"


def _compare_vectors(found: Mapping[str, str], expected: Mapping[str, Tensor]) -> dict[str, Any]:
    """Compare biases and norms, element by element; they are loaded as they are."""
    known = {name: _decoded(text) for name, text in found.items() if name in expected}
    wrong = [name for name, values in known.items() if not torch.equal(values, expected[name])]
    if wrong:
        raise PublicationError(
            f"the engine holds other vectors than were published: {len(wrong)} of {len(known)}",
            got=f"{wrong[0]} differs",
            expected="the trainer's norms and biases, element by element",
            remedy="nothing was sampled with them: restart the engine, then `truing train --resume`",
        )
    return {"compared": len(known), "fused": sorted(expected.keys() - known.keys())[:3]}


def _decoded(text: str) -> Tensor:
    """Return the float64 values [n] that the worker encoded."""
    try:
        return torch.from_numpy(np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8").copy())
    except ValueError as error:
        raise EngineError(
            "the worker's answer cannot be read", got=f"{text[:40]!r}: {error}", expected="base64 of float64"
        ) from error
