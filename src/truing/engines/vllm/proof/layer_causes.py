"""Why layers of an engine may compute with other weights than were published.

A cause is named if it gives each output of each wrong layer up to rounding; the simplest one comes first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from truing.engines.vllm.proof.changed_weights import CHANGES
from truing.engines.vllm.proof.expected_responses import Responses
from truing.engines.vllm.proof.wrong_layers import WrongLayers

MOVED = 0.1
"""Share of a response that another order of its outputs changes at least; other differences are smaller."""

SEVERAL = 8
"""Outputs of one layer that are not equal to earlier ones by chance."""


@dataclass(frozen=True)
class Known:
    """What wrong layers may have instead, and the words for what is found.

    ``earlier`` are other weights, the likeliest first, and ``added`` what may be added to the published ones,
    by what they are in words. ``changed`` returns the published ones after one of ``CHANGES``.
    """

    otherwise: str
    zero: str = "the engine holds zeros"
    zero_is_earlier: bool = False  # whether zeros are other weights, if those are zero too
    scaled: str = "they are scaled by {:.4g}"
    earlier: Sequence[tuple[str, Responses]] = ()
    added: Sequence[tuple[str, Responses]] = ()
    changed: Callable[[str], Responses] | None = None

    def of_part(self, wrong: WrongLayers) -> "Known":
        """Return the same at the outputs of the layers that differ alone."""
        changed = self.changed
        return replace(
            self,
            earlier=[(name, wrong.of_part(each)) for name, each in self.earlier],
            added=[(name, wrong.of_part(each)) for name, each in self.added],
            changed=changed and (lambda name: wrong.of_part(changed(name))),
        )


def cause_of(wrong: WrongLayers, known: Known) -> str:
    """Return why layers are wrong."""
    if wrong.are_near:  # as elements that must be equal
        return known.otherwise
    if cause := next(_causes(wrong, known), ""):
        return cause
    part = wrong.in_part()
    if part is None:
        return known.otherwise
    of_part = known.of_part(wrong)
    cause = next(_causes(part, of_part), "")
    if not cause:
        part, cause = _stale_part(part, of_part)
    if not cause:
        return known.otherwise
    name = next(iter(part.found))
    first, last, outputs = wrong.outputs(name)
    where = "" if len(part.found) == len(wrong.found) else f"in {len(part.found)} of them "
    return f"{where}only outputs {first} to {last} of the {outputs} of {name} differ; {cause}"


def _stale_part(part: WrongLayers, known: Known) -> tuple[WrongLayers, str]:
    """Return the layers whose outputs are partly those of earlier weights, and of which; or no cause.

    One worker of several may hold them. Its inputs of other layers change all outputs of those.
    """
    stale: dict[str, list[str]] = {}
    for words, responses in known.earlier:
        stale[words] = [
            name
            for name, values in part.found.items()
            if len(values) >= SEVERAL and name in responses and part.fits(name, *responses[name])
        ]
    words = max(stale, key=lambda words: len(stale[words]), default="")
    if not words or not stale[words]:
        return part, ""
    found = {name: part.found[name] for name in stale[words]}
    return replace(part, found=found), f"they are {words}"


def _causes(wrong: WrongLayers, known: Known) -> Iterator[str]:
    """Yield the causes that give all wrong layers."""
    earlier = [f"they are {name}" for name, responses in known.earlier if wrong.are(responses)]
    if wrong.are_zero and not (known.zero_is_earlier and earlier):  # a first adapter is zero too
        yield known.zero
        return
    yield from earlier
    for words in CHANGES if known.changed else ():
        assert known.changed is not None
        if wrong.are(known.changed(words)):
            yield f"they are {words}"
    if (factors := wrong.are_sum([wrong.published])) is not None:
        yield known.scaled.format(float(factors[0]))
    if exchanged := _exchanged(wrong):
        name = next(iter(exchanged))
        yield f"they are those of other layers: {name} has the weights of {exchanged[name]}"
    if _are_reordered(wrong):
        yield "their outputs are in another order, as if heads or parts were put together otherwise"
    yield from _sums(wrong, [*known.added, *known.earlier])


def _sums(wrong: WrongLayers, others: Sequence[tuple[str, Responses]]) -> Iterator[str]:
    """Yield sums of the published weights and others that give the layers."""
    for name, responses in others:
        if (factors := wrong.are_sum([wrong.published, responses])) is not None:
            published, other = factors.tolist()
            yield f"they are {published:.3g} times the published ones plus {other:.3g} times {name}"
    terms = [wrong.published, *(responses for _, responses in others)]
    if len(terms) > 2 and wrong.are_sum(terms) is not None:
        names = ", ".join(name for name, _ in others)
        yield f"they are a sum of the published ones and some of: {names}"


def _exchanged(wrong: WrongLayers) -> Mapping[str, str]:
    """Return which other layer's published weights each wrong layer has; empty unless each has some."""
    exchanged: dict[str, str] = {}
    for name in wrong.found:
        others = (
            other
            for other, (response, size) in wrong.published.items()
            if other != name and response.any() and wrong.fits(name, response, size)
        )
        if (other := next(others, None)) is None:
            return {}
        exchanged[name] = other
    return exchanged


def _are_reordered(wrong: WrongLayers) -> bool:
    """Return whether each layer has the published outputs in an order that is clearly another one."""
    for name, values in wrong.found.items():
        response, size = wrong.published[name]
        if values.shape != response.shape or torch.dist(values, response) < MOVED * response.norm():
            return False
        highest = torch.full_like(size, float(size.max()))
        if not wrong.rounding.explains(values.sort().values, response.sort().values, highest):
            return False
    return True
