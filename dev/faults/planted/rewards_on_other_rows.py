"""Each attempt gets the reward of the one before it."""

from dataclasses import replace

from dev.faults.fault import Fault, patched


def _wrong(real):
    def collect(*args, **kwargs):
        def turned(group):
            rollouts = group.rollouts
            before = (rollouts[-1], *rollouts[:-1])
            moved = [replace(one, reward=other.reward) for one, other in zip(rollouts, before, strict=True)]
            return replace(group, rollouts=tuple(moved))

        return [turned(group) for group in real(*args, **kwargs)]

    return collect


FAULT = Fault(
    name="rewards-on-other-rows",
    numbers=(45,),
    what="rewards are one row off their attempts",
    plant=lambda: patched("truing.learner.session:collect", _wrong),
    expected=("RWD002",),
)
