"""Digests of optimizer state and weights: each optimizer step must start from what the last one left."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from truing.instrumentation.update_facts import rotating_slice
from truing.learner.learner import Learner
from truing.models.digest import quick_sum
from truing.utils.phase_clock import phase

MAX_ENTRIES = 2_000_000
"""Entries per digest, some 8 ms; a state that is cleared loses more than these."""

TensorsFn = Callable[[], Mapping[str, Tensor]]
"""Returns the current tensors by name."""


class MomentDigests:
    """Digests tensors before and after each optimizer step of an update.

    The fact ``changed`` counts steps whose tensors changed before the next step or the update's end.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, tensors: TensorsFn) -> None:
        self.optimizer, self.tensors = optimizer, tensors
        self.update_index, self.digest_after = 0, ""
        self.fact: dict[str, Any] = {}
        self.handles = [
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
        ]

    def begin(self, update_index: int) -> None:
        """Start an update, which may have several optimizer steps."""
        self.update_index, self.digest_after, self.fact = update_index, "", {}

    def end(self) -> None:
        """End the update: compare the tensors with those after its last step."""
        if self.digest_after:
            self._compare(self._digest(self.update_index))

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self.handles:
            handle.remove()

    def _before(self, *_: object) -> None:
        digest = self._digest(self.update_index)
        self.fact.setdefault("before", digest)
        self._compare(digest)

    def _compare(self, digest: str) -> None:
        changed = bool(self.digest_after and digest != self.digest_after)
        self.fact["changed"] = self.fact.get("changed", 0) + changed

    def _after(self, *_: object) -> None:
        """Digest right after the step: any later change happens between two steps."""
        self.digest_after = self._digest(self.update_index)
        self.fact["next"] = self._digest(self.update_index + 1)

    def _digest(self, update_index: int) -> str:
        with phase("doctor"):
            return quick_sum(rotating_slice(self.tensors(), update_index, MAX_ENTRIES))


def moments_of(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the optimizer's state tensors as ``weight/key``."""
    return {
        f"{name}/{key}": moment
        for name, weight in parameters.items()
        for key, moment in optimizer.state.get(weight, {}).items()
        if isinstance(moment, Tensor)
    }


@contextmanager
def moment_facts(learner: Learner, update_index: int, facts: dict[str, Any]) -> Iterator[None]:
    """Add the digests around the optimizer steps within the block to ``facts``; nothing without a step.

    ``moments`` digests the optimizer's state, ``stepped`` the weights.
    """
    trained = {
        f"{n}/{name}": weight
        for n, group in enumerate(learner.parameter_groups())
        for name, weight in group.items()
    }
    digests = {
        "moments": MomentDigests(learner.optimizer, partial(moments_of, learner.optimizer, trained)),
        "stepped": MomentDigests(learner.optimizer, lambda: trained),
    }
    for each in digests.values():
        each.begin(update_index)
    try:
        yield
    finally:
        for each in digests.values():
            each.close()
    for name, each in digests.items():
        each.end()
        if each.fact:
            facts[name] = each.fact
