"""How far the critic's head moves in a step."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from truing.distributed.sharded_tensors import whole
from truing.learner.optimizer_step import OptimizerStep
from truing.measurements.measurement import Measurement
from truing.types.facts import Facts


class CriticHead(Measurement):
    """The L2 norm of the change of the critic's head, summed over optimizer steps."""

    facts = ()
    metrics = ("value/head_step",)
    cost = "a copy of the head"

    @contextmanager
    def on_optimizer(self, this: OptimizerStep) -> Iterator[None]:
        """Add the length of one optimizer step."""
        if (critic := self.step.learner.critic) is None:
            yield
            return
        initial = [whole(parameter.detach()).clone() for parameter in critic.head.parameters()]
        yield
        distances = [
            (whole(after.detach()) - before).norm()
            for after, before in zip(critic.head.parameters(), initial, strict=True)
        ]
        moved = float(torch.stack(distances).norm())
        self.numbers["value/head_step"] = self.numbers.get("value/head_step", 0.0) + moved

    def after_step(self) -> Facts:
        """Leave 0 if no optimizer step was made; nothing without a critic."""
        if self.step.learner.critic is not None:
            self.numbers.setdefault("value/head_step", 0.0)
        return {}
