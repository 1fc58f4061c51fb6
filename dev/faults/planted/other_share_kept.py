"""The reference is a moving average with another share than declared."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def average(before, now, keep):
        return real(before, now, 0.5)

    return average


FAULT = Fault(
    name="other-share-kept",
    numbers=(),
    what="a sync of the reference keeps half of it instead of the declared nine tenths",
    plant=lambda: patched("truing.models.reference:ema_update", _wrong),
    expected=("REF005",),
    changes={"kl.coef": 0.05, "reference.sync_every": 1, "reference.keep": 0.9, "lora.rank": 4},
)
