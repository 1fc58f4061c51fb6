"""Advantages are divided by the deviation of the batch instead of the declared group's."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    return lambda rewards, group, scale, eps=1e-4: real(rewards, group, "batch", eps)


FAULT = Fault(
    name="deviation-of-batch",
    numbers=(41,),
    what="the deviation is of the batch, not of the group",
    plant=lambda: patched("truing.algos.grpo:group_advantages", _wrong),
    expected=("ADV001",),
)
