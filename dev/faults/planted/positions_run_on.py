"""Position ids count through the packed batch and do not restart with each row."""

import torch

from dev.faults.fault import Fault, patched


def _wrong(real):
    def decode(causal, ids_L, positions_L, attention):
        return real(causal, ids_L, torch.arange(len(positions_L)), attention)

    return decode


FAULT = Fault(
    name="positions-run-on",
    numbers=(6,),
    what="positions count through the batch, not within each row",
    plant=lambda: patched("truing.models.forward.hidden_states:decoder_states", _wrong),
    expected=("SMP005", "RAT002"),
    refusal="Truing's forward differs from this model's own",
)
