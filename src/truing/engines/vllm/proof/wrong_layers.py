"""The layers in which an engine differs from what was published, and whether other weights explain them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from truing.engines.vllm.proof.expected_responses import Responses


def layer_error(found: Tensor, response: Tensor, size: Tensor, eps: float) -> float:
    """Return the largest difference in units of eps · Σ|W|; NaN counts as infinite."""
    if found.shape != response.shape:
        return float("inf")
    if not len(found):
        return 0.0
    error = ((found - response).abs() / (eps * size).clamp(min=1e-30)).max()
    return float(error.nan_to_num(nan=float("inf")))


@dataclass(frozen=True)
class WrongLayers:
    """The engine's responses of the layers that differ, and what they are compared with.

    ``bound`` is how many units of eps · Σ|W| rounding explains.
    """

    found: Mapping[str, Tensor]
    published: Responses
    eps: float
    bound: float

    @property
    def are_zero(self) -> bool:
        """Whether the engine holds nothing for them."""
        return not any(values.any() for values in self.found.values())

    def fits(self, name: str, response: Tensor, size: Tensor) -> bool:
        """Return whether the engine's response of a layer is this one up to rounding."""
        return self.agree(self.found[name], response, size)

    def agree(self, values: Tensor, response: Tensor, size: Tensor) -> bool:
        """Return whether values are a response up to rounding."""
        return layer_error(values, response, size, self.eps) <= self.bound

    def are(self, responses: Responses) -> bool:
        """Return whether each of them has these responses."""
        return all(name in responses and self.fits(name, *responses[name]) for name in self.found)

    def are_sum(self, terms: Sequence[Responses]) -> Tensor | None:
        """Return the factors with which each of them is a sum of these responses; None if they are not.

        The factors are fitted to all outputs at once, each in units of its rounding.
        """
        if not all(self._is_known(name, term) for term in terms for name in self.found):
            return None
        values = self._joined({name: (each, each) for name, each in self.found.items()}, 0)
        columns = torch.stack([self._joined(term, 0) for term in terms], dim=1)
        unit = self._joined(self.published, 1).clamp(min=1e-30)
        scaled, target = columns / unit[:, None], values / unit
        if len(values) <= len(terms) or not bool(torch.isfinite(target).all()):
            return None
        factors = torch.linalg.lstsq(scaled, target, driver="gelsd").solution
        for name in self.found:
            parts = zip(factors, terms, strict=True)
            response, size = zip(*((f * t[name][0], f.abs() * t[name][1]) for f, t in parts), strict=True)
            if not self.fits(name, torch.stack(response).sum(0), torch.stack(size).sum(0)):
                return None
        return factors

    def in_part(self) -> "WrongLayers | None":
        """Return the same with the outputs that differ alone; None if all outputs of a layer do."""
        masks = {name: self._differs(name) for name in self.found if self._is_known(name, self.published)}
        if len(masks) < len(self.found) or any(bool(mask.all()) for mask in masks.values()):
            return None
        return WrongLayers(
            {name: self.found[name][mask] for name, mask in masks.items()},
            {name: tuple(each[masks[name]] for each in self.published[name]) for name in masks},
            self.eps,
            self.bound,
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
        response, size = self.published[name]
        return ~((self.found[name] - response).abs() <= self.bound * self.eps * size)

    def _is_known(self, name: str, responses: Responses) -> bool:
        return name in responses and responses[name][0].shape == self.found[name].shape

    def _joined(self, responses: Responses, part: int) -> Tensor:
        return torch.cat([responses[name][part] for name in self.found])
