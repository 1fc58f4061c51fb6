"""Compare what the engine computes with, layer by layer, with the trainer's weights.

The engine sends its layers' responses to a vector r of ±1 (``worker/truing_vllm_worker.py``). The trainer
computes W r in float64, and the difference is measured in units of the rounding of one output.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from truing.engines.vllm.proof.expected_responses import Expected, Responses
from truing.engines.vllm.proof.layer_causes import Known, cause_of
from truing.engines.vllm.proof.nearer_format import nearer_format
from truing.engines.vllm.proof.probe_answer import ProbeAnswer
from truing.engines.vllm.proof.rounding import Rounding
from truing.engines.vllm.proof.wrong_layers import WrongLayers
from truing.errors import PublicationError

EXPERTS_BOUND, ELEMENTS_BOUND, DELTA_BOUND = 1.0, 1.0, 2.0
"""Units of the answers of experts, whose rounding has a wider bound (healthy ones stay below 0.09); of
elements that are compared by themselves; and of adapters, whose B is rounded once it is scaled (by 0.5)."""

REMEDY = "nothing was sampled with them: restart the engine"

Earlier = Sequence[tuple[str, Expected]]
"""Other weights that the engine may hold, by what they are in words; the likeliest first."""

Changed = Callable[[str], Expected]
"""From one of ``CHANGES`` to the responses of the trainer's weights after it."""

OTHER_BASE = (
    "they are of another model, of a base that was changed after it was loaded, quantized, or loaded"
    " otherwise than sent"
)

OTHER_EXPERTS = "its experts alone differ, as if a reload had left them unpacked or out"

OTHER_ADAPTER = "the engine holds another adapter"

ADAPTER_SCALED = "the adapter is scaled by {:.4g} times the declared alpha / rank"

NEVER_DELIVERED, OR_MERGED, GONE, LEFT_OUT, HALF = (
    "the adapter was never delivered, the engine holds zeros",
    "the adapter was never delivered, or was merged into weights that are rounded to bfloat16, which loses"
    " small updates: the engine holds zeros",
    "the adapter is gone, the engine holds zeros",
    "their part of the adapter is missing, the engine holds zeros",
    "their A is the published one, and their B is zero",
)

OTHER_B = "their A is the published one, and their B is another"


@dataclass(frozen=True)
class Comparison:
    """The engine's answer to a probe, beside what the trainer expects.

    Both methods return a receipt: how many layers agree, and by how much the worst one differs.
    """

    answer: ProbeAnswer  # of all workers
    expected: Expected
    dtype: torch.dtype  # of the engine
    earlier: Earlier  # what the engine held before, to recognise stale layers
    # the trainer's weights as they may have become, to recognise it; None if it does not have them any more
    changed: Changed | None = None

    def base(self) -> dict[str, Any]:
        """Compare all weights but the adapter's.

        Raises:
            PublicationError: A layer computes with other weights.
        """
        answer, expected, rounding = self.answer, self.expected, self._rounding
        receipt: dict[str, Any] = {}
        adapters = [("the adapter", expected), *((f"the adapter of {name}", e) for name, e in self.earlier)]
        merged = [(name, each.delta) for name, each in adapters if each.delta]
        linear = self._known("linear", OTHER_BASE, added=merged, zero_is_earlier=True)
        _check_proven(answer)
        _check_tied_head(answer.linear, expected, rounding)
        self._check_format()
        receipt["linear"] = _compare_layers(answer.linear, expected.linear, rounding, linear)
        receipt["tables"] = _compare_layers(answer.tables, expected.linear, rounding, linear)
        if expected.experts:
            _check_complete(expected.experts.keys() - answer.experts.keys(), len(expected.experts), "experts")
            found = {name: each for name, each in answer.experts.items() if name in expected.experts}
            experts = self._known("experts", OTHER_EXPERTS)
            receipt["experts"] = _compare_layers(
                found, expected.experts, self._within(EXPERTS_BOUND), experts
            )
        vectors = self._known("vectors", OTHER_BASE)
        receipt["vectors"] = _compare_vectors(
            answer.vectors, expected.vectors, vectors, self._within(ELEMENTS_BOUND)
        )
        missing = expected.linear.keys() - answer.linear.keys() - {*expected.tied, "lm_head"}
        _check_complete(missing, len(expected.linear), "weights")
        return receipt

    def adapter(self) -> dict[str, Any]:
        """Compare the adapter; the receipt is empty without one.

        Raises:
            PublicationError: The engine has none, another one, or one of a layer that the trainer lacks.
        """
        answer, expected = self.answer, self.expected
        receipt: dict[str, Any] = {}
        if expected.delta:
            _check_complete(expected.delta.keys() - answer.delta.keys(), len(expected.delta), "adapter")
            zero = self._zero_adapter()
            down = self._known("down", OTHER_ADAPTER, scaled=ADAPTER_SCALED, zero=zero)
            down = replace(down, earlier=self._earlier_down())
            _compare_layers(answer.down, expected.down, self._rounding, down)
            delta = self._known(
                "delta",
                OTHER_B if answer.down else OTHER_ADAPTER,
                scaled=ADAPTER_SCALED,
                zero=HALF if answer.down else zero,
                # in bfloat16 an earlier A may be equal to the published one up to rounding
                zero_is_earlier=bool(answer.down) and self.dtype is torch.bfloat16,
            )
            receipt["delta"] = _compare_layers(answer.delta, expected.delta, self._within(DELTA_BOUND), delta)
        _check_foreign(answer.foreign)
        return receipt

    def _check_format(self) -> None:
        """Raise if layers have fewer bits than were published, which may be within the bound."""
        if self.changed is None or self.dtype is torch.float32:
            return
        changed, found = self.changed, self.answer.linear
        words, names = nearer_format(
            found, self.expected.linear, self._rounding.eps, lambda name: changed(name).linear
        )
        if names:
            raise PublicationError(
                _wrong_layers(names, len(found), f"they are {words}"),
                got=f"outputs of {', '.join(names[:3])} that are nearer to such weights",
                expected="outputs that differ from the published weights' by rounding alone",
                remedy=REMEDY,
            )

    @property
    def _rounding(self) -> Rounding:
        return Rounding.of_products(self.dtype)

    def _within(self, bound: float) -> Rounding:
        return Rounding(torch.finfo(self.dtype).eps, bound)

    def _zero_adapter(self) -> str:
        """Return what zeros in place of an adapter mean."""
        if any(each.any() for each in (*self.answer.down.values(), *self.answer.delta.values())):
            return LEFT_OUT
        if self.changed is None:
            return GONE
        return OR_MERGED if self.dtype is torch.bfloat16 else NEVER_DELIVERED

    def _earlier_down(self) -> list[tuple[str, Responses]]:
        """Return earlier A, and in words whether the engine's B is as old."""
        wrong = {
            name: values
            for name, values in self.answer.delta.items()
            if not self._within(DELTA_BOUND).explains(values, *self.expected.delta[name])
        }
        layers = WrongLayers(wrong, self.expected.delta, self._within(DELTA_BOUND))
        return [
            (name if layers.are(each.delta) else f"the A of {name}, with another B", each.down)
            for name, each in self.earlier
        ]

    def _known(self, kind: str, otherwise: str, **words: Any) -> Known:
        """Return what the engine may hold instead of a kind of weights."""
        changed = self.changed
        return Known(
            otherwise,
            earlier=[(name, getattr(each, kind)) for name, each in self.earlier],
            changed=changed and (lambda name: getattr(changed(name), kind)),
            **words,
        )


def _compare_layers(
    found: Mapping[str, Tensor],
    expected: Responses,
    rounding: Rounding,
    known: Known,
) -> dict[str, Any]:
    """Return the worst difference, in units of rounding, and its layer; raise if it is beyond rounding."""
    errors = {name: rounding.error(found[name], *expected[name]) for name in found}
    wrong = [name for name, error in errors.items() if not error <= rounding.bound]
    if not wrong:
        worst = max(errors, key=lambda name: errors[name], default="")
        return {"layers": len(errors), "largest": round(errors.get(worst, 0.0), 3), "layer": worst}
    cause = cause_of(WrongLayers({name: found[name] for name in wrong}, expected, rounding), known)
    raise PublicationError(
        _wrong_layers(wrong, len(errors), cause),
        got=f"an output of {wrong[0]} that differs by {errors[wrong[0]]:.3g} times its rounding"
        + (f"; also {', '.join(wrong[1:3])}" if wrong[1:] else ""),
        expected=f"at most {rounding.bound:g} times, in each layer",
        remedy=REMEDY,
    )


def _check_proven(answer: ProbeAnswer) -> None:
    """Raise if the engine has experts that cannot be probed."""
    for name, why in answer.unproven.items():
        raise PublicationError(
            f"what the engine's experts compute cannot be proven: {why}",
            got=name,
            expected="a kernel that computes chosen experts of one worker",
            remedy="start the server with another --moe-backend, such as triton; `truing explain vllm`",
        )


def _wrong_layers(names: Sequence[str], layers: int, cause: str) -> str:
    where = f"in {len(names)} of {layers} layers"
    return f"the engine computes with other weights than were published {where}: {cause}"


def _check_tied_head(found: Mapping[str, Tensor], expected: Expected, rounding: Rounding) -> None:
    """Raise if a layer that is tied to another one differs, and no other layer does."""
    errors = {name: rounding.error(values, *expected.linear[name]) for name, values in found.items()}
    wrong = {name: error for name, error in errors.items() if not error <= rounding.bound}
    if wrong and wrong.keys() <= expected.tied:
        name = next(iter(wrong))
        raise PublicationError(
            f"{name} is tied to the embedding, but the engine computes with an older packed copy of it",
            got=f"an output of {name} that differs by {wrong[name]:.3g} times its rounding;"
            " no other layer differs",
            expected=f"at most {rounding.bound:g} times: the same weight in both",
            remedy="the engine's reload left the packed copy as it was; `truing explain vllm` lists versions"
            " known to work",
        )


def _check_complete(missing: Iterable[str], layers: int, what: str) -> None:
    """Raise if the engine has not every layer."""
    if names := sorted(missing):
        raise PublicationError(
            f"the engine has no {what} for {len(names)} of {layers} layers",
            got=f"none for {', '.join(names[:3])}",
            expected=f"{what} for each layer that the trainer has",
            remedy="the engine did not load what was published; its log says which names it skipped",
        )


def _check_foreign(adapted: Mapping[str, Tensor]) -> None:
    """Raise if the engine adapts a layer that the trainer does not."""
    if names := sorted(name for name, delta in adapted.items() if delta.any()):
        raise PublicationError(
            f"the engine adapts {len(names)} layers that the trainer does not: {', '.join(names[:3])}",
            got=f"a response of up to {max(float(adapted[name].abs().max()) for name in names):.3g}",
            expected="0, no adapter",
            remedy=REMEDY,
        )


def _compare_vectors(
    found: Mapping[str, Tensor], expected: Mapping[str, Tensor], known: Known, rounding: Rounding
) -> dict[str, Any]:
    """Compare biases and norms, element by element; they are loaded as they are."""
    wrong = [name for name, values in found.items() if not torch.equal(values, expected[name])]
    if not wrong:
        return {"compared": len(found), "unseen": sorted(expected.keys() - found.keys())[:3]}
    published = _elements(expected)
    ones = {name: (torch.ones_like(values), torch.ones_like(values)) for name, values in expected.items()}
    elements = replace(
        known,
        earlier=[(name, _elements(each)) for name, each in known.earlier],
        added=[("a vector of ones", ones)],
        changed=known.changed and (lambda name: _elements(known.changed(name))),
    )
    cause = cause_of(WrongLayers({name: found[name] for name in wrong}, published, rounding), elements)
    raise PublicationError(
        f"the engine holds other vectors than were published: {len(wrong)} of {len(found)}: {cause}",
        got=f"{wrong[0]} differs",
        expected="the trainer's norms and biases, element by element",
        remedy=REMEDY,
    )


def _elements(vectors: Mapping[str, Tensor]) -> Responses:
    """Return vectors as responses: each element is rounded by itself."""
    return {name: (values, values.abs()) for name, values in vectors.items()}
