"""The trainer's prompt has lost its first token."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def hidden_before(causal, sequences, index_2N, **kwargs):
        here = index_2N.clone()
        here[1] -= 1
        return real(causal, [sequence[1:] for sequence in sequences], here, **kwargs)

    return hidden_before


FAULT = Fault(
    name="trainer-lost-a-token",
    numbers=(11, 15),
    what="the trainer's prompt is one token shorter than the sampler's",
    plant=lambda: patched("truing.models.forward.score:hidden_before", _wrong),
    expected=("SMP005", "RAT002"),
    refusal="Truing's forward differs from this model's own",
)
