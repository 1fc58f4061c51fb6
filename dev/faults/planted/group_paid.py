"""Every attempt gets the mean reward of its group."""

from dataclasses import replace
from statistics import fmean

from dev.faults.fault import Fault, patched


def _wrong(real):
    def collect(*args, grade, **kwargs):
        def paid(group):
            mean = fmean(rollout.reward for rollout in group.rollouts)
            return replace(group, rollouts=tuple(_with(rollout, mean) for rollout in group.rollouts))

        groups = real(*args, grade=grade, **kwargs)
        return groups if grade is None else [paid(group) for group in groups]

    return collect


def _with(rollout, reward):
    return replace(rollout, reward=reward, reward_parts=dict.fromkeys(rollout.reward_parts, reward))


FAULT = Fault(
    name="group-paid",
    numbers=(45,),
    what="every attempt gets the mean reward of its group, and so do the parts of its reward",
    plant=lambda: patched("truing.learner.session:collect", _wrong),
    expected=("RWD002",),
)
