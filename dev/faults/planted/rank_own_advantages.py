"""Each rank divides advantages by the deviation of the rewards of its own groups."""

import torch.distributed as dist

from dev.faults.fault import Fault, patched


def _wrong(real):
    def group_advantages(rewards, group, scale, eps=1e-4):
        own = group % 2 == dist.get_rank()
        return real(rewards, group, scale, eps) * (rewards.std() / rewards[own].std())

    return group_advantages


FAULT = Fault(
    name="rank-own-advantages",
    numbers=(99,),
    what="each rank divides advantages by the deviation of its own groups",
    plant=lambda: patched("truing.algos.grpo:group_advantages", _wrong),
    expected=("DST001",),
    changes={"trainer.ranks": 2, "grpo.advantage_scale": "batch"},
)
