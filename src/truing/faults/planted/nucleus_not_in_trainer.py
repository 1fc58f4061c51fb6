"""The trainer scores over the whole vocabulary what was drawn from a nucleus."""

from dataclasses import replace

from truing.faults.fault import Fault, patched


def without_support(real):
    """In the place of ``contract_logits``: every token was possible."""

    def logits(logits_NV, contract, *args, support_NV=None, **kwargs):
        return real(logits_NV, replace(contract, top_p=1.0), *args, **kwargs)

    return logits


FAULT = Fault(
    name="nucleus-not-in-trainer",
    numbers=(19,),
    what="the trainer leaves the nucleus out",
    plant=lambda: patched("truing.models.forward.score:processed_logits", without_support),
    expected=("SMP005", "RAT002"),
    changes={"sampling.top_p": 0.7, "sft.steps": 20},
)
