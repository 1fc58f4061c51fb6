"""The adapter's dropout in the forward passes that train."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from truing.learner.optimizer_step import OptimizerStep
from truing.measurements.measurement import MeasuredStep, Measurement
from truing.models.lora import POLICY, adapted_layers
from truing.types.facts import Facts


class AdapterDropout(Measurement):
    """Layers of the adapter whose dropout is off while they train, and the seed of each optimizer step.

    Only where the recipe declares dropout.
    """

    facts = ("dropout",)
    cost = "a look at each layer of the adapter"

    def __init__(self, step: MeasuredStep) -> None:
        super().__init__(step)
        self._seeds, self._off = dict[int, str](), set[str]()
        self._layers = adapted_layers(step.learner.model)

    @contextmanager
    def on_backward(self, this: OptimizerStep) -> Iterator[None]:
        """Look at the layers and the seed; passes that are repeated for memory have the same."""
        lora = self.step.recipe.lora
        if lora and lora.dropout:
            self._seeds[this.index] = f"{torch.initial_seed():016x}"
            dropouts = {name: layer.lora_dropout[POLICY] for name, layer in self._layers.items()}
            self._off |= {
                name
                for name, dropout in dropouts.items()
                if not dropout.training or getattr(dropout, "p", 0.0) != lora.dropout
            }
        yield

    def after_step(self) -> Facts:
        """Return both; nothing without an optimizer step."""
        if not self._seeds:
            return {}
        off, seeds = sorted(self._off), [*self._seeds.values()]
        return {"dropout": {"layers": len(self._layers), "off": off[:1], "count": len(off), "seeds": seeds}}
