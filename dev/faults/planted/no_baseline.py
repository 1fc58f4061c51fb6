"""Rewards are used as advantages."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    return lambda rewards, group, scale, eps=1e-4: rewards


FAULT = Fault(
    name="no-baseline",
    numbers=(41,),
    what="there is no baseline: the reward is the advantage",
    plant=lambda: patched("truing.algos.grpo:group_advantages", _wrong),
    expected=("ADV001", "ADV009"),
)
