"""Only half of the adapted layers reach the sampler."""

import torch

from dev.faults.fault import NO_SYNC, Fault, patched


def _wrong(real):
    def sync(policy, plain):
        before = {name: weight.detach().clone() for name, weight in plain.named_parameters()}
        real(policy, plain)
        with torch.no_grad():
            for n, (name, weight) in enumerate(plain.named_parameters()):
                if n % 2:
                    weight.copy_(before[name])

    return sync


FAULT = Fault(
    name="half-synced",
    numbers=(26, 27),
    what="half of the layers are missing in the sync",
    plant=lambda: patched("truing.engines.local.engine:sync_weights", _wrong),
    expected=("SMP003", "SMP004"),
    changes={"lora.rank": 4},
    not_in_bfloat16=NO_SYNC,
)
