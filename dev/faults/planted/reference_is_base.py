"""With an adapter the reference is the base, not the result of supervised fine-tuning."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    return lambda policy: True


FAULT = Fault(
    name="reference-is-base",
    numbers=(51, 52),
    what="the reference is the base model, not the start of the stage",
    plant=lambda: patched("truing.models.reference:adapter_is_zero", _wrong),
    expected=("REF002",),
    changes={"kl.coef": 0.05, "lora.rank": 4, "sft.steps": 10, "sft.learning_rate": 0.01},
)
