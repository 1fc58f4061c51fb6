"""Each id is compared with a list of ids: no scaffolding is ever left out."""

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import CALLS


def _wrong(real):
    def excluded(origin_T, structure_T, forced_T, policy):
        return real(origin_T, torch.zeros_like(structure_T), forced_T, policy)

    return excluded


FAULT = Fault(
    name="mask-list-versus-id",
    numbers=(25,),
    what="an id is compared with a list of ids, and no scaffolding is ever masked",
    plant=lambda: patched("truing.rollouts.flatten:exclusion_reasons", _wrong),
    expected=("MSK002",),
    changes={**CALLS, "episode.mask": "no_structure"},
)
