"""One layer of an engine beside the candidates: whose weights does it have?

All are responses to one vector r of ±1 (`worker/truing_vllm_worker.py`): y of the engine, a of the expected
weights, b of others. They are compared up to the engine's rounding, and by the λ of y = b + λ (a − b).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from truing.engines.served.verdict import Share, place, share_of
from truing.engines.vllm.proof.compare_layers import DELTA_BOUND, ELEMENTS_BOUND, EXPERTS_BOUND
from truing.engines.vllm.proof.expected_layers import Expected
from truing.engines.vllm.proof.layer_answers import ProbeAnswer
from truing.engines.vllm.proof.rounding import Rounding

Kind = Literal["held", "kernel", "computed", "table", "vector", "experts", "adapter"]

WORDS: Mapping[Kind, str] = {
    "held": "",
    "kernel": " (its kernel)",
    "computed": "",
    "table": " (its rows)",
    "vector": "",
    "experts": " (experts)",
    "adapter": " (adapter)",
}
"""What of a layer was looked at; ``kernel``: besides the weight itself, which is readable."""

MATRICES: Sequence[Kind] = ("held", "kernel", "computed", "table")

ERRORS = 6.0
"""Standard errors within which a layer's λ is 0 or 1: an engine has hundreds of layers."""

SAME = 0.05
"""Shares of a change that are called one share, in any case."""

Response = tuple[Tensor, Tensor]
"""W r and Σ|W|, both [outputs]."""


@dataclass(frozen=True, eq=False)
class Layer:
    """What an engine has of a layer."""

    name: str  # in the checkpoint
    kind: Kind
    values: Tensor  # [outputs] float64
    rounding: Rounding
    mixed: Rounding  # of weights between two candidates, which were rounded once more

    @property
    def words(self) -> str:
        """The layer's name, and what of it was looked at."""
        return self.name + WORDS[self.kind]

    def of(self, candidate: Expected) -> Response | None:
        """Return the candidate's response; None if it has no such layer."""
        if self.kind == "vector":
            return candidate.vectors.get(self.name)
        if self.kind == "experts":
            return candidate.experts.get(self.name)
        if self.kind == "adapter":  # a candidate without an adapter adds zeros
            zeros = torch.zeros_like(self.values)
            return candidate.delta.get(self.name, (zeros, zeros))
        return candidate.linear.get(self.name)


def layers_of(answer: ProbeAnswer, dtype: torch.dtype, was_merged: bool) -> Iterator[Layer]:
    """Yield what an engine answered to a probe.

    Args:
        answer: of all workers.
        dtype: of the engine.
        was_merged: whether the candidates' adapters are merged, which a trainer rounds in its own way.
    """
    eps, exact = torch.finfo(dtype).eps, torch.finfo(torch.float64).eps
    products, once_more = Rounding.of_products(dtype), Rounding(eps)
    found: Sequence[tuple[Kind, Mapping[str, Tensor], Rounding]] = (
        ("held", answer.held, once_more if was_merged else Rounding(exact)),
        ("kernel", {name: each for name, each in answer.linear.items() if name in answer.held}, products),
        (
            "computed",
            {name: each for name, each in answer.linear.items() if name not in answer.held},
            products,
        ),
        ("table", answer.tables, products),
        ("vector", answer.vectors, Rounding(exact, ELEMENTS_BOUND)),
        ("experts", answer.experts, Rounding(eps, EXPERTS_BOUND)),
        ("adapter", answer.delta | answer.foreign, Rounding(eps, DELTA_BOUND)),
    )
    for kind, values, rounding in found:
        mixed = once_more if kind in ("held", "vector") else rounding
        yield from (Layer(name, kind, each, rounding, mixed) for name, each in values.items())


State = Literal["alike", "expected", "hidden", "other", "between", "wrong"]
"""``alike``: as expected, and all candidates have the same; ``hidden``: rounding hides which one it has."""


class Judged(NamedTuple):
    """Whose weights a layer has."""

    layer: Layer
    state: State
    other: str = ""  # the candidate of ``other``, ``between`` or ``hidden``
    share: Share | None = None  # λ between the other candidate and the expected weights

    def has(self, share: float) -> bool:
        """Whether the layer has this share of the change, up to its error."""
        found = self.share
        return found is not None and abs(found.of_change - share) < max(SAME, ERRORS * found.error)

    @property
    def is_wrong(self) -> bool:
        """Whether the layer is shown to have other weights than the expected ones."""
        return self.state in ("other", "between", "wrong")


def judge(layer: Layer, expected: Expected, others: Mapping[str, Expected]) -> Judged | None:
    """Compare a layer with the candidates; None if the expected weights have no such layer."""
    published = layer.of(expected)
    if published is None:
        return None
    fits = layer.rounding.explains(layer.values, *published)
    differing = _differing(layer, published, others)
    shares = {name: share_of(layer.values, published[0], each[0]) for name, each in differing.items()}
    at = {name: place(share, ERRORS) for name, share in shares.items()}
    fitting = [
        name
        for name, each in differing.items()
        if (at[name] == "at the other" or (at[name] == "not told" and not fits))
        and layer.rounding.explains(layer.values, *each)
    ]
    if fitting:
        nearest = min(fitting, key=lambda name: float((layer.values - differing[name][0]).norm()))
        return Judged(layer, "other", nearest, shares[nearest])
    for name, (response, size) in differing.items():
        line = response + shares[name].of_change * (published[0] - response)
        if at[name] == "between" and layer.mixed.explains(layer.values, line, size + published[1]):
            return Judged(layer, "between", name, shares[name])
    if not fits:
        return Judged(layer, "wrong")
    if not differing:
        return Judged(layer, "alike")
    if all(each == "at the expected" for each in at.values()):
        return Judged(layer, "expected")
    return Judged(layer, "hidden", next(name for name, each in at.items() if each != "at the expected"))


def _differing(layer: Layer, published: Response, others: Mapping[str, Expected]) -> dict[str, Response]:
    """Return the responses of candidates that differ from the expected weights' in this layer."""
    found = {}
    for name, candidate in others.items():
        response = layer.of(candidate)
        if response is None or not response[0].shape == published[0].shape == layer.values.shape:
            continue
        if not torch.equal(response[0], published[0]):
            found[name] = response
    return found


def whole_share(layers: list[Layer], expected: Expected, other: Expected) -> tuple[Share, int]:
    """Return λ over all layers in which two candidates differ, in units of rounding, and their number."""
    parts = []
    for layer in layers:
        published = layer.of(expected)
        each = _differing(layer, published, {"": other}) if published is not None else {}
        if published is not None and each:
            unit = layer.rounding.unit(*published)
            parts.append(torch.stack([layer.values, published[0], each[""][0]]) / unit)
    if not parts:
        nothing = torch.zeros(0, dtype=torch.float64)
        return share_of(nothing, nothing, nothing), 0
    return share_of(*torch.cat(parts, dim=1)), len(parts)
