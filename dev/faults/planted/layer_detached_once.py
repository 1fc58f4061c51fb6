"""The forward of one update is cut after a layer."""

from itertools import count

from dev.faults.fault import Fault, patched
from truing.models.forward.score import causal_model

AT = 7
"""The fourth update of GRPO, after three of supervised fine-tuning."""


def _wrong(real):
    calls = count(1)

    def accumulate(learner, *args):
        if next(calls) != AT:
            return real(learner, *args)
        layer = causal_model(learner.model).model.layers[1].mlp
        handle = layer.register_forward_hook(lambda module, inputs, out: out.detach())
        try:
            return real(learner, *args)
        finally:
            handle.remove()

    return accumulate


FAULT = Fault(
    name="layer-detached-once",
    numbers=(32, 71),
    what="the forward of one update is cut after a layer",
    plant=lambda: patched("truing.learner.step:accumulate_gradients", _wrong),
    expected=("OPT014", "OPT009"),
    changes={"grpo.steps": 6},
)
