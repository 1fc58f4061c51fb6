"""Sums of what an optimiser moves: what one of its steps leaves is what the next one finds."""

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
"""Entries that are summed at once, some 8 ms: whoever clears a state clears more than those."""

Held = Callable[[], Mapping[str, Tensor]]
"""Tensors by name as they are now."""


class Watch:
    """Sums tensors around the steps of an optimiser while ``turn`` is the number of the update.

    The fact ``changed`` counts steps that left other tensors than the next step, or the update's end, found.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, held: Held) -> None:
        self.optimizer, self.held = optimizer, held
        self.turn, self.left = 0, ""
        self.fact: dict[str, Any] = {}
        self.handles = [
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
        ]

    def begin(self, turn: int) -> None:
        """Another update, which may be of several steps."""
        self.turn, self.left, self.fact = turn, "", {}

    def end(self) -> None:
        """The update is done: nobody has written into what its last step left."""
        if self.left:
            self._compare(self._sum(self.turn))

    def close(self) -> None:
        """Watch no longer."""
        for handle in self.handles:
            handle.remove()

    def _before(self, *_: object) -> None:
        found = self._sum(self.turn)
        self.fact.setdefault("before", found)
        self._compare(found)

    def _compare(self, found: str) -> None:
        self.fact["changed"] = self.fact.get("changed", 0) + bool(self.left and found != self.left)

    def _after(self, *_: object) -> None:
        """At once: whatever happens to them from here on is between two steps."""
        self.left, self.fact["next"] = self._sum(self.turn), self._sum(self.turn + 1)

    def _sum(self, turn: int) -> str:
        with phase("doctor"):
            return quick_sum(rotating_slice(self.held(), turn, MAX_ENTRIES))


def moments_of(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What the optimiser keeps of each weight."""
    return {
        f"{name}/{key}": moment
        for name, weight in parameters.items()
        for key, moment in optimizer.state.get(weight, {}).items()
        if isinstance(moment, Tensor)
    }


@contextmanager
def step_facts(learner: Learner, turn: int, found: dict[str, Any]) -> Iterator[None]:
    """Add to the facts ``found`` what the steps within the block found and left; nothing where none is made.

    ``moments`` is of the optimiser's state, ``stepped`` of the weights themselves.
    """
    moved = {
        f"{n}/{name}": weight
        for n, part in enumerate(learner.parameter_groups())
        for name, weight in part.items()
    }
    watches = {
        "moments": Watch(learner.optimizer, partial(moments_of, learner.optimizer, moved)),
        "stepped": Watch(learner.optimizer, lambda: moved),
    }
    for watch in watches.values():
        watch.begin(turn)
    try:
        yield
    finally:
        for watch in watches.values():
            watch.close()
    for name, watch in watches.items():
        watch.end()
        if watch.fact:
            found[name] = watch.fact
