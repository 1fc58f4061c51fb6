"""Baselines belong to other groups: the order of rows was lost."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def groups_of(rollouts, setting):
        rewards, group = real(rollouts, setting)
        return rewards, group.roll(1)

    return groups_of


FAULT = Fault(
    name="groups-mixed",
    numbers=(40,),
    what="baselines come from rollouts of another prompt",
    plant=lambda: patched("truing.algos.grpo:rewards_and_groups", _wrong),
    expected=("ADV001", "ADV008", "ADV009"),
)
