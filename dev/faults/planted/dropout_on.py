"""Dropout is active in the forward of the loss without a declaration."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def add_lora(*args, **kwargs):
        return real(*args, **kwargs | {"dropout": 0.3})

    return add_lora


FAULT = Fault(
    name="dropout-on",
    numbers=(35,),
    what="the adapter has dropout that the recipe does not declare",
    plant=lambda: patched("truing.learner.restore:add_lora", _wrong),
    expected=("RAT002", "OPT009"),
    changes={"lora.rank": 4, "sft.steps": 10, "sft.learning_rate": 0.03},
)
