"""Advantages are divided by the population deviation instead of the declared sample deviation."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def advantages(rewards, group, scale, eps=1e-4):
        size = len(rewards) // len(group.unique())
        return real(rewards, group, scale, eps) * (size / (size - 1)) ** 0.5

    return advantages


FAULT = Fault(
    name="population-deviation",
    numbers=(41,),
    what="the deviation is of the population, n and not n − 1",
    plant=lambda: patched("truing.algos.grpo:group_advantages", _wrong),
    expected=("ADV001", "ADV002"),
)
