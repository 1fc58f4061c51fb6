"""Equal rewards get advantages: rounding of the mean, divided by a tiny ε."""

import torch

from dev.faults.fault import Fault, patched


def _wrong(real):
    def advantages(rewards, group, scale, eps=1e-8):
        advantage = torch.zeros(len(rewards))
        for each in group.unique():
            r = rewards[group == each].float()
            centred = r - r.cumsum(0)[-1] / len(r)
            advantage[group == each] = centred / (r.std() + 1e-8)
        return advantage

    return advantages


def _same(rollout, task):
    return 0.9


FAULT = Fault(
    name="equal-rewards-amplified",
    numbers=(38,),
    what="groups of equal reward have advantages of rounding",
    plant=lambda: patched("truing.algos.grpo:group_advantages", _wrong),
    expected=("ADV003", "ADV001"),
    changes={"grpo.group_size": 6},
    reward=_same,
)
