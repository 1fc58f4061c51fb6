"""The layers in which an engine differs from what was published, and whether other weights explain them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from truing.engines.vllm.proof.expected_responses import Responses
from truing.engines.vllm.proof.rounding import Rounding

LARGEST_FACTOR = 1000.0
"""Of weights in a sum of several; two that are nearly equal give any third one with larger factors."""


@dataclass(frozen=True)
class WrongLayers:
    """The engine's responses of the layers that differ, and what they are compared with."""

    found: Mapping[str, Tensor]
    published: Responses
    rounding: Rounding

    @property
    def are_near(self) -> bool:
        """Whether they are the published ones up to rounding."""
        return all(name in self.published and self.fits(name, *self.published[name]) for name in self.found)

    @property
    def are_zero(self) -> bool:
        """Whether the engine holds nothing for them."""
        return not any(values.any() for values in self.found.values())

    def fits(self, name: str, response: Tensor, size: Tensor) -> bool:
        """Return whether the engine's response of a layer is this one up to rounding."""
        return self.rounding.explains(self.found[name], response, size)

    def are(self, responses: Responses) -> bool:
        """Return whether each of them has these responses, and they are not the published ones."""
        return all(name in responses and self.fits(name, *responses[name]) for name in self.found) and any(
            not torch.equal(responses[name][0], self.published[name][0]) for name in self.found
        )

    def are_sum(self, terms: Sequence[Responses]) -> Tensor | None:
        """Return the factors with which each of them is a sum of these responses; None if they are not.

        The factors are fitted to all outputs at once, each in units of its rounding.
        """
        if not all(self._is_known(name, term) for term in terms for name in self.found):
            return None
        values = self._joined({name: (each, each) for name, each in self.found.items()}, 0)
        columns = torch.stack([self._joined(term, 0) for term in terms], dim=1)
        unit = torch.cat([self.rounding.unit(*self.published[name]) for name in self.found])
        scaled, target = columns / unit[:, None], values / unit
        if len(values) <= len(terms) or not bool(torch.isfinite(target).all()):
            return None
        factors = torch.linalg.lstsq(scaled, target, driver="gelsd").solution
        if len(terms) > 1 and float(factors.abs().max()) > LARGEST_FACTOR:
            return None
        for name in self.found:
            parts = zip(factors, terms, strict=True)
            response, size = zip(*((f * t[name][0], f.abs() * t[name][1]) for f, t in parts), strict=True)
            if not self.fits(name, torch.stack(response).sum(0), torch.stack(size).sum(0)):
                return None
        return factors

    def in_part(self) -> "WrongLayers | None":
        """Return the layers of which some outputs agree, with the outputs that differ; None without any."""
        masks = {name: self._differs(name) for name in self.found if self._is_known(name, self.published)}
        masks = {name: mask for name, mask in masks.items() if bool(mask.any()) and not bool(mask.all())}
        if not masks:
            return None
        return WrongLayers(
            {name: self.found[name][mask] for name, mask in masks.items()},
            {name: tuple(each[masks[name]] for each in self.published[name]) for name in masks},
            self.rounding,
        )

    def of_part(self, responses: Responses) -> Responses:
        """Return responses at the outputs that differ alone."""
        masks = {name: self._differs(name) for name in self.found if self._is_known(name, responses)}
        return {name: tuple(each[mask] for each in responses[name]) for name, mask in masks.items()}

    def outputs(self, name: str) -> tuple[int, int, int]:
        """Return the first and the last output of a layer that differs, and how many it has."""
        places = self._differs(name).nonzero()[:, 0]
        return int(places[0]), int(places[-1]), len(self.found[name])

    def _differs(self, name: str) -> Tensor:
        difference = (self.found[name] - self.published[name][0]).abs()
        return ~(difference <= self.rounding.bound * self.rounding.unit(*self.published[name]))

    def _is_known(self, name: str, responses: Responses) -> bool:
        return name in responses and responses[name][0].shape == self.found[name].shape

    def _joined(self, responses: Responses, part: int) -> Tensor:
        return torch.cat([responses[name][part] for name in self.found])
