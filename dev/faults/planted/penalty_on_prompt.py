"""The trainer counts penalties on the prompt too."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    return lambda sample, t: sample.token_ids[:t]


FAULT = Fault(
    name="penalty-on-prompt",
    numbers=(20,),
    what="penalties count the tokens of the prompt",
    plant=lambda: patched("truing.models.forward.score:_generated", _wrong),
    expected=("SMP005", "RAT002"),
    changes={"sampling.presence_penalty": 1.0},
)
