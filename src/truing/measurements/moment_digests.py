"""Digests of optimizer state and weights: each optimizer step must start from what the last one left."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from truing.measurements.measurement import MeasuredStep, Measurement
from truing.measurements.weight_digests import rotating_slice
from truing.models.digest import quick_sum
from truing.types.facts import Facts
from truing.types.weight_facts import BeforeAndAfter
from truing.utils.phase_clock import phase

MAX_ENTRIES = 2_000_000
"""Entries per digest, some 8 ms; a state that is cleared loses more than these."""

TensorsFn = Callable[[], Mapping[str, Tensor]]
"""Returns the current tensors by name."""


class MomentDigests(Measurement):
    """Digests of the optimizer's state, and of the weights, before and after each ``optimizer.step()``."""

    facts = ("moments", "stepped")
    cost = "sums over at most 2 million entries, four at each optimizer step"

    def __init__(self, step: MeasuredStep) -> None:
        super().__init__(step)
        optimizer, groups = step.learner.optimizer, step.learner.parameter_groups()
        trained = {f"{n}/{name}": each for n, group in enumerate(groups) for name, each in group.items()}
        self._moments = DigestsBetweenSteps(partial(moments_of, optimizer, trained))
        self._weights = DigestsBetweenSteps(lambda: trained)
        for digests in (self._moments, self._weights):
            digests.begin(step.step_index)

    def before_optimizer(self) -> None:
        """Compare with what the last optimizer step left."""
        self._moments.before()
        self._weights.before()

    def after_optimizer(self) -> None:
        """Digest what the optimizer step leaves."""
        self._moments.after()
        self._weights.after()

    def after_step(self) -> Facts:
        """Return the digests; nothing without an optimizer step."""
        self._moments.end()
        self._weights.end()
        moments, stepped = self._moments.fact, self._weights.fact
        return {"moments": moments, "stepped": stepped} if moments and stepped else {}


class DigestsBetweenSteps:
    """Digests of tensors before and after each optimizer step of a step.

    ``changed`` counts optimizer steps after which they changed before the next one, or the step's end.
    """

    def __init__(self, tensors: TensorsFn) -> None:
        self.tensors = tensors
        self.step_index, self._digest_before, self._digest_after, self._next = 0, "", "", ""
        self._changed = 0

    def begin(self, step_index: int) -> None:
        """Start a step, which may have several optimizer steps."""
        self.step_index, self._digest_before, self._digest_after, self._next = step_index, "", "", ""
        self._changed = 0

    @phase("doctor")
    def before(self, *_: object) -> None:
        """Digest before an optimizer step."""
        digest = self._digest(self.step_index)
        self._digest_before = self._digest_before or digest
        self._compare(digest)

    @phase("doctor")
    def after(self, *_: object) -> None:
        """Digest right after an optimizer step: any later change happens between two of them."""
        self._digest_after = self._digest(self.step_index)
        self._next = self._digest(self.step_index + 1)

    def end(self) -> None:
        """End the step: compare with what its last optimizer step left."""
        if self._digest_after:
            self._compare(self._digest(self.step_index))

    @property
    def fact(self) -> BeforeAndAfter | None:
        """The digests; None without an optimizer step."""
        if not self._digest_after:
            return None
        return {"before": self._digest_before, "changed": self._changed, "next": self._next}

    def _compare(self, digest: str) -> None:
        self._changed += bool(self._digest_after and digest != self._digest_after)

    def _digest(self, step_index: int) -> str:
        return quick_sum(rotating_slice(self.tensors(), step_index, MAX_ENTRIES))


def moments_of(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the optimizer's state tensors as ``weight/key``."""
    return {
        f"{name}/{key}": moment
        for name, weight in parameters.items()
        for key, moment in optimizer.state.get(weight, {}).items()
        if isinstance(moment, Tensor)
    }
