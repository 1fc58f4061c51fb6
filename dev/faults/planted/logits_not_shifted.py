"""The logits of a token are read at its own position, not one before."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def hidden_before(causal, sequences, index_2N, **kwargs):
        here = index_2N.clone()
        ends = index_2N.new_tensor([len(sequence) - 1 for sequence in sequences])[index_2N[0]]
        here[1] = (here[1] + 1).minimum(ends)
        return real(causal, sequences, here, **kwargs)

    return hidden_before


FAULT = Fault(
    name="logits-not-shifted",
    numbers=(3,),
    what="the trainer's logits are not shifted",
    plant=lambda: patched("truing.models.forward.score:hidden_before", _wrong),
    expected=("SMP005", "RAT002"),
    refusal="Truing's forward differs from this model's own",
)
