"""The norm of the gradient that the optimizer gets, after clipping."""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from truing.learner.optimizer import gradient_norm
from truing.measurements.measurement import MeasuredStep, Measurement
from truing.measurements.weight_digests import MAX_WEIGHTS
from truing.types.facts import Facts
from truing.types.weight_facts import Clip


class _Clipped(NamedTuple):
    """The gradient of policy or critic at one optimizer step."""

    before: float  # its norm as measured, before clipping
    norm: float  # at the optimizer
    eps: float
    part: str


class ClippedGradient(Measurement):
    """The norms of the gradients of policy and critic at each ``optimizer.step()``, as clipping leaves them.

    On record is the one that is farthest from its norm before clipping, clipped as declared.
    """

    facts = ("clip",)
    cost = "a norm of each part at each optimizer step, of at most 8 million weights"

    def __init__(self, step: MeasuredStep) -> None:
        super().__init__(step)
        self._norms: list[list[tuple[float, float]]] = []  # by optimizer step and part: norm and rounding

    def before_optimizer(self) -> None:
        """Measure the norms, and the rounding of the gradients."""
        groups = self.step.learner.parameter_groups()
        if sum(each.numel() for group in groups for each in group.values()) > MAX_WEIGHTS:
            return
        self._norms.append([])
        for group in groups:
            dtypes = {each.grad.dtype for each in group.values() if each.grad is not None}
            coarsest = max((torch.finfo(dtype).eps for dtype in dtypes), default=0.0)
            self._norms[-1].append((float(gradient_norm(group)), coarsest))

    def after_step(self) -> Facts:
        """Return the norm that differs most from the declared one; nothing without an optimizer step."""
        most = self.step.learner.optimizer_cfg.max_grad_norm

        def differs(each: _Clipped) -> float:
            expected = min(each.before, most)
            return abs(each.norm - expected) / (expected or 1.0)

        worst = max(self._clipped(), key=differs, default=None)
        return {} if worst is None else {"clip": Clip(**worst._asdict())}

    def _clipped(self) -> Iterator[_Clipped]:
        """Yield the norms before and after clipping; a part without a gradient has none."""
        stepped = [each for each in self.step.optimizer_steps if each.grad_norms]
        for this, norms in zip(stepped, self._norms, strict=False):  # a second call has no norm of its own
            for part, before, (norm, eps) in zip(("policy", "critic"), this.grad_norms, norms, strict=False):
                if eps:
                    where = f", in optimizer step {this.index + 1}" if len(stepped) > 1 else ""
                    yield _Clipped(before, norm, eps, f"of the {part}{where}")
