"""The trainer's hidden states are off by one part in ten thousand, everywhere."""

from dev.faults.fault import Fault, patched

SHARE = 1e-4
"""Log-probabilities move by some 2e-5 nats, less than rounding moves a few tokens now and then."""


def _wrong(real):
    def hidden_before(*args, **kwargs):
        hidden_ND = real(*args, **kwargs)
        return hidden_ND + SHARE * hidden_ND.detach().roll(1, -1)

    return hidden_before


FAULT = Fault(
    name="hidden-states-off",
    numbers=(70,),
    what="the trainer's hidden states are off by one part in ten thousand, everywhere",
    plant=lambda: patched("truing.models.forward.score:hidden_before", _wrong),
    expected=("SMP005", "RAT002"),
    not_in_bfloat16="below bfloat16's rounding: it moves log-probabilities by 2e-5 nats, rounding by 1e-3",
)
