"""The norm of the gradient that the optimizer gets, after clipping."""

import torch

from truing.learner.optimizer import gradient_norm
from truing.measurements.measurement import Measurement
from truing.measurements.weight_digests import MAX_WEIGHTS


class ClippedGradient(Measurement):
    """The norm of the gradient at the last ``optimizer.step()``, as ``grad/norm`` is before clipping."""

    facts = ("clip",)
    cost = "one norm, of at most 8 million weights"

    def before_optimizer(self) -> None:
        """Measure the norm, and the rounding of the gradients."""
        weights = self.step.learner.parameters.values()
        dtypes = {each.grad.dtype for each in weights if each.grad is not None}
        if dtypes and sum(each.numel() for each in weights) <= MAX_WEIGHTS:
            coarsest = max(torch.finfo(dtype).eps for dtype in dtypes)
            norm = float(gradient_norm(self.step.learner.parameters))
            self.found = {"clip": {"norm": norm, "eps": coarsest}}
