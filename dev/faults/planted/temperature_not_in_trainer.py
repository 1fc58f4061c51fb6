"""The trainer scores at temperature 1 although the sampler used another."""

from dataclasses import replace

from dev.faults.fault import Fault, patched


def _wrong(real):
    def logits(logits_NV, sampling_params, *args, **kwargs):
        return real(logits_NV, replace(sampling_params, temperature=1.0), *args, **kwargs)

    return logits


FAULT = Fault(
    name="temperature-not-in-trainer",
    numbers=(17,),
    what="the trainer ignores the temperature",
    plant=lambda: patched("truing.models.forward.score:processed_logits", _wrong),
    expected=("SMP005", "RAT002"),
    changes={"sampling.temperature": 0.7},
)
