"""The ratio is that of the sequence instead of the declared token's."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    return lambda log_ratio, mask, level: real(log_ratio, mask, "sequence")


FAULT = Fault(
    name="ratio-per-sequence",
    numbers=(36,),
    what="one ratio per sequence instead of the declared one per token",
    plant=lambda: patched("truing.ops.losses:importance_ratio", _wrong),
    expected=("MSK003",),
    changes={"grpo.inner_epochs": 3, "sft.steps": 10},
)
