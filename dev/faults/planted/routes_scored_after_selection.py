"""Scores of replayed experts are read after the router's selection set all others to 0."""

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import MIXTURE
from dev.faults.moe_engine import rounds_otherwise


def _wrong(real):
    def scores_at(scores, ids):
        own = scores.topk(ids.shape[1], dim=-1).indices
        selected = torch.zeros_like(scores).scatter(-1, own, scores.gather(-1, own))
        return real(selected, ids) + 1e-12  # so that a sum of zeros can be divided by

    return scores_at


FAULT = Fault(
    name="routes-scored-after-selection",
    numbers=(90,),
    what="scores of replayed experts are read after all but the router's own selection were set to 0",
    plant=lambda: rounds_otherwise(lambda: patched("truing.models.forward.expert_routes:scores_at", _wrong)),
    expected=("SMP012",),
    changes=MIXTURE,
)
