"""The sampler's weights are rounded to bfloat16: small updates vanish."""

import torch

from dev.faults.fault import Fault, patched


def _wrong(real):
    def sync(policy, plain):
        real(policy, plain)
        with torch.no_grad():
            for weight in plain.parameters():
                weight.copy_(weight.bfloat16().float())

    return sync


FAULT = Fault(
    name="sampler-in-bfloat16",
    numbers=(28,),
    what="the sampler's weights are rounded to bfloat16",
    plant=lambda: patched("truing.engines.local.engine:sync_weights", _wrong),
    expected=("SMP003", "SMP004", "REF001"),
    changes={"lora.rank": 4},
    not_in_bfloat16="no fault: the sampler is declared to compute in bfloat16",
)
