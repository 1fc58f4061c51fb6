"""Expert routes are recorded with another sample."""

import torch

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import MIXTURE
from truing.types.token import NO_ROUTE


def _wrong(real):
    held = []

    def join_routes(turns):
        routes = real(turns)
        if routes is None:
            return None
        held.append(routes)
        before = held[-2] if len(held) > 1 else routes
        missing = torch.full((max(0, len(routes) - len(before)), *routes.shape[1:]), NO_ROUTE)
        return torch.cat([before, missing.to(routes)])[: len(routes)]

    return join_routes


FAULT = Fault(
    name="routes-of-another-sample",
    numbers=(89,),
    what="each sample is recorded with the expert routes of the sample before it",
    plant=lambda: patched("truing.rollouts.flatten:join_routes", _wrong),
    expected=("SMP012",),
    changes=MIXTURE,
)
