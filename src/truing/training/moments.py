"""Sums of the optimiser's moments: what an update leaves is what the next one finds."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from truing.clock import phase
from truing.models.digest import quick_sum
from truing.training.facts import spot
from truing.training.learner import Learner

MOST = 2_000_000
"""Entries that are summed at once, some 8 ms: whoever clears a state clears more than those."""


class Moments:
    """Watches the steps of an optimiser while ``turn`` is the number of the update."""

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]) -> None:
        self.optimizer, self.parameters = optimizer, parameters
        self.turn, self.left = 0, ""
        self.fact: dict[str, Any] = {}
        self.handles = [
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
        ]

    def begin(self, turn: int) -> None:
        """Another update, which may be of several steps."""
        self.turn, self.left, self.fact = turn, "", {}

    def close(self) -> None:
        """Watch no longer."""
        for handle in self.handles:
            handle.remove()

    def _before(self, *_: object) -> None:
        with phase("doctor"):
            found = self._sum(self.turn)
        self.fact.setdefault("before", found)
        self.fact["changed"] = self.fact.get("changed", 0) + bool(self.left and found != self.left)

    def _after(self, *_: object) -> None:
        """At once: whatever happens to them from here on is between two steps."""
        with phase("doctor"):
            self.left, self.fact["next"] = self._sum(self.turn), self._sum(self.turn + 1)

    def _sum(self, turn: int) -> str:
        state = {
            f"{name}/{key}": moment
            for name, weight in self.parameters.items()
            for key, moment in self.optimizer.state.get(weight, {}).items()
            if isinstance(moment, Tensor)
        }
        return quick_sum(spot(state, turn, MOST))


@contextmanager
def moment_facts(learner: Learner, turn: int, found: dict[str, Any]) -> Iterator[None]:
    """Add to the facts ``found`` what the steps within the block found and left; nothing where none is made.

    ``changed`` counts steps after the first which did not find what the one before them left.
    """
    moved = {f"{n}/{name}": weight for n, part in enumerate(learner.parts()) for name, weight in part.items()}
    watch = Moments(learner.optimizer, moved)
    watch.begin(turn)
    try:
        yield
    finally:
        watch.close()
    if watch.fact:
        found["moments"] = watch.fact
