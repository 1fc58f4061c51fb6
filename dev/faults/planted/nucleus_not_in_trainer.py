"""The trainer scores over the whole vocabulary although the sampler used a nucleus."""

from dataclasses import replace

from dev.faults.fault import Fault, patched


def without_support(real):
    """Return a replacement of ``contract_logits`` in which every token is possible."""

    def logits(logits_NV, sampling_params, *args, support_NV=None, **kwargs):
        return real(logits_NV, replace(sampling_params, top_p=1.0), *args, **kwargs)

    return logits


FAULT = Fault(
    name="nucleus-not-in-trainer",
    numbers=(19,),
    what="the trainer ignores the nucleus",
    plant=lambda: patched("truing.models.forward.score:processed_logits", without_support),
    expected=("SMP005", "RAT002"),
    changes={"sampling.top_p": 0.7, "sft.steps": 20},
)
