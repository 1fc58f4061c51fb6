"""Why layers of an engine may compute with other weights than were published.

A cause is named if it gives each output of each wrong layer up to rounding; the simplest one comes first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from truing.engines.vllm.proof.expected_layers import FORMATS, Responses
from truing.engines.vllm.proof.rounding import Rounding


@dataclass(frozen=True)
class Known:
    """What wrong layers may have instead, and the words for what is found.

    ``earlier`` are other weights by what they are in words, the likeliest first. ``changed`` returns the
    published ones in one of ``FORMATS``.
    """

    otherwise: str
    zero: str = "the engine computes zeros"
    zero_is_earlier: bool = False  # whether zeros are other weights, if those are zero too
    scaled: str = "they are scaled by {:.4g}"
    earlier: Sequence[tuple[str, Responses]] = ()
    changed: Callable[[str], Responses] | None = None


@dataclass(frozen=True)
class WrongLayers:
    """The engine's responses of the layers that differ, and what they are compared with."""

    found: Mapping[str, Tensor]
    published: Responses
    rounding: Rounding

    def cause(self, known: Known) -> str:
        """Return why they are wrong."""
        near = all(name in self.published and self.fits(name, *self.published[name]) for name in self.found)
        if near:  # as elements that must be equal
            return known.otherwise
        return next(self._causes(known), known.otherwise)

    def _causes(self, known: Known) -> Iterator[str]:
        """Yield the causes that give all of them."""
        earlier = [f"they are {name}" for name, responses in known.earlier if self.are(responses)]
        is_zero = not any(values.any() for values in self.found.values())
        if is_zero and not (known.zero_is_earlier and earlier):  # a first adapter is zero too
            yield known.zero
            return
        yield from earlier
        if known.changed:
            for words in FORMATS:
                if self.are(known.changed(words)):
                    yield f"they are {words}"
        if (factor := self.factor()) is not None:
            yield known.scaled.format(factor)

    def fits(self, name: str, response: Tensor, size: Tensor) -> bool:
        """Return whether the engine's response of a layer is this one up to rounding."""
        return self.rounding.explains(self.found[name], response, size)

    def are(self, responses: Responses) -> bool:
        """Return whether each of them has these responses, and they are not the published ones."""
        return all(name in responses and self.fits(name, *responses[name]) for name in self.found) and any(
            not torch.equal(responses[name][0], self.published[name][0]) for name in self.found
        )

    def factor(self) -> float | None:
        """Return the number by which the published responses are multiplied in each of them; None without.

        It is fitted to all outputs at once, each in units of its rounding.
        """
        if sum(len(values) for values in self.found.values()) < 2:  # any factor fits one output
            return None
        product = square = torch.zeros((), dtype=torch.float64)
        for name, values in self.found.items():
            if name not in self.published or self.published[name][0].shape != values.shape:
                return None
            unit = self.rounding.unit(*self.published[name])
            response = self.published[name][0] / unit
            product, square = product + response @ (values / unit), square + response @ response
        factor = product / square
        multiplied = {name: (factor * y, factor.abs() * size) for name, (y, size) in self.published.items()}
        return float(factor) if all(self.fits(name, *multiplied[name]) for name in self.found) else None
