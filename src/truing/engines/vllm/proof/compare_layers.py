"""Compare what the engine computes with, layer by layer, with the trainer's weights.

The engine sends its layers' responses to a vector r of ±1 (``worker/truing_vllm_worker.py``). The trainer
computes W r in float64, and the difference is measured in units of the rounding of one output.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from truing.engines.vllm.proof.expected_layers import Expected, Responses
from truing.engines.vllm.proof.layer_answers import ProbeAnswer
from truing.engines.vllm.proof.layer_causes import Known, WrongLayers
from truing.engines.vllm.proof.rounding import Rounding, nearer_format
from truing.errors import PublicationError

EXPERTS_BOUND, ELEMENTS_BOUND, DELTA_BOUND = 1.0, 1.0, 2.0
"""Units of the answers of experts, whose rounding has a wider bound (healthy ones stay below 0.09); of
elements that are compared by themselves; and of adapters, whose B is rounded once it is scaled (by 0.5)."""

REMEDY = "nothing was sampled with them: restart the engine; `truing explain vllm` says what each cause means"

Earlier = Sequence[tuple[str, Expected]]
"""Other weights that the engine may hold, by what they are in words; the likeliest first."""

Changed = Callable[[str], Expected]
"""From one of ``FORMATS`` to the responses of the trainer's weights in it."""

OTHER_MODEL = "no layer is as published, as of another model or in an unknown format"

OTHER = "they are neither earlier ones, nor the published ones rounded, quantized or scaled"

NOT_EARLIER = "they are not earlier ones"

ADAPTER_SCALED = "the adapter is scaled by {:.4g} times the declared alpha / rank"

ADAPTER_ZERO = "their adapter is missing or zero, the engine computes without it"


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
        _check_proven(answer)
        self._check_format()
        linear = self._known("linear", zero_is_earlier=True)
        receipt["linear"] = _compare(answer.linear, expected.linear, rounding, linear, OTHER_MODEL)
        receipt["tables"] = _compare(answer.tables, expected.linear, rounding, linear)
        if expected.experts:
            _check_complete(expected.experts.keys() - answer.experts.keys(), len(expected.experts), "experts")
            found = {name: each for name, each in answer.experts.items() if name in expected.experts}
            experts = self._known("experts")
            receipt["experts"] = _compare(found, expected.experts, self._within(EXPERTS_BOUND), experts)
        receipt["vectors"] = _compare_vectors(
            answer.vectors, expected.vectors, self._known("vectors"), self._within(ELEMENTS_BOUND)
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
            words = {"zero": ADAPTER_ZERO, "scaled": ADAPTER_SCALED}
            down = replace(self._known("down", **words), earlier=self._earlier_down())
            _compare(answer.down, expected.down, self._rounding, down)
            # in bfloat16 an earlier A may be equal to the published one up to rounding
            zero_is_earlier = bool(answer.down) and self.dtype is torch.bfloat16
            delta = self._known("delta", zero_is_earlier=zero_is_earlier, **words)
            receipt["delta"] = _compare(answer.delta, expected.delta, self._within(DELTA_BOUND), delta)
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

    def _earlier_down(self) -> list[tuple[str, Responses]]:
        """Return the A of earlier adapters whose B the engine has too."""
        rounding, delta = self._within(DELTA_BOUND), self.expected.delta
        wrong = {
            name: values
            for name, values in self.answer.delta.items()
            if not rounding.explains(values, *delta[name])
        }
        layers = WrongLayers(wrong, delta, rounding)
        return [(name, each.down) for name, each in self.earlier if layers.are(each.delta)]

    def _known(self, kind: str, **words: Any) -> Known:
        """Return what the engine may hold instead of a kind of weights."""
        changed = self.changed
        return Known(
            OTHER if changed else NOT_EARLIER,
            earlier=[(name, getattr(each, kind)) for name, each in self.earlier],
            changed=changed and (lambda name: getattr(changed(name), kind)),
            **words,
        )


def _compare(
    found: Mapping[str, Tensor],
    expected: Responses,
    rounding: Rounding,
    known: Known,
    if_all: str = "",
) -> dict[str, Any]:
    """Return the worst difference, in units of rounding, and its layer; raise if it is beyond rounding.

    ``if_all`` is the cause if every layer differs and no other cause is known.
    """
    errors = {name: rounding.error(found[name], *expected[name]) for name in found}
    wrong = [name for name, error in errors.items() if not error <= rounding.bound]
    if not wrong:
        worst = max(errors, key=lambda name: errors[name], default="")
        return {"layers": len(errors), "largest": round(errors.get(worst, 0.0), 3), "layer": worst}
    if if_all and len(wrong) == len(errors):
        known = replace(known, otherwise=if_all)
    cause = WrongLayers({name: found[name] for name in wrong}, expected, rounding).cause(known)
    name, outputs = wrong[0], len(found[wrong[0]])
    several = rounding.beyond(found[name], *expected[name])
    raise PublicationError(
        _wrong_layers(wrong, len(errors), cause),
        got=f"an output of {name} that differs by {errors[name]:.3g} times its rounding"
        + (f" ({several} of its {outputs} outputs do)" if 0 < several < outputs else "")
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
    found: Mapping[str, Tensor], expected: Responses, known: Known, rounding: Rounding
) -> dict[str, Any]:
    """Compare biases and norms, element by element; they are loaded as they are."""
    wrong = [name for name, values in found.items() if not torch.equal(values, expected[name][0])]
    if not wrong:
        return {"compared": len(found), "unseen": sorted(expected.keys() - found.keys())[:3]}
    cause = WrongLayers({name: found[name] for name in wrong}, expected, rounding).cause(known)
    raise PublicationError(
        f"the engine holds other vectors than were published: {len(wrong)} of {len(found)}: {cause}",
        got=f"{wrong[0]} differs",
        expected="the trainer's norms and biases, element by element",
        remedy=REMEDY,
    )
