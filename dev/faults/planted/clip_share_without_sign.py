"""The clipped share counts every ratio outside the band, whatever its advantage."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    return lambda ratio, advantage, low, high: (ratio > 1 + high) | (ratio < 1 - low)


FAULT = Fault(
    name="clip-share-without-sign",
    numbers=(59,),
    what="the clipped share ignores the sign of the advantage",
    plant=lambda: patched("truing.metrics.update:clip_mask", _wrong),
    expected=("RAT006",),
    changes={"grpo.inner_epochs": 4, "grpo.learning_rate": 0.01, "sft.steps": 10},
)
