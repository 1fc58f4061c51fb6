"""The sampler bans stops in short answers, and the trainer ignores the ban."""

from dataclasses import replace

from dev.faults.fault import Fault, patched


def _wrong(real):
    def logits(logits_NV, sampling_params, *args, **kwargs):
        return real(logits_NV, replace(sampling_params, min_new_tokens=0), *args, **kwargs)

    return logits


FAULT = Fault(
    name="min-tokens-not-in-trainer",
    numbers=(21, 22),
    what="the trainer ignores the ban of stops",
    plant=lambda: patched("truing.models.forward.score:processed_logits", _wrong),
    expected=("SMP005", "RAT002"),
    changes={"sampling.min_new_tokens": 3, "sft.steps": 20},
)
