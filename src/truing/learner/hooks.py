"""What runs beside the optimizer steps of a step: subclasses measure; the methods here do nothing."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor

from truing.learner.optimizer_step import OptimizerStep
from truing.types.batch import Batch
from truing.types.sample import Sample


class StepHooks:
    """Called by ``train_step``; they change no weight, gradient, optimizer state or RNG state."""

    def before_optimizer_steps(self, minibatch: Sequence[Sample]) -> None:
        """Called with the first minibatch, while the weights are those of the sampler."""

    def on_backward(self, this: OptimizerStep) -> AbstractContextManager[None]:
        """Return a block around all passes of an optimizer step; another one after memory ran out in it."""
        return nullcontext()

    def mass_below_mask(self, this: OptimizerStep, batch: Batch) -> Tensor | None:
        """Return the tokens whose probability of all smaller ids a forward also computes: [B, T] bool."""
        return None

    def on_optimizer(self, this: OptimizerStep) -> AbstractContextManager[None]:
        """Return a block around clipping and ``optimizer.step()``."""
        return nullcontext()
