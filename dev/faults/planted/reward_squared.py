"""Rewards are squared after grading."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def grade(rollout, rewards):
        graded = real(rollout, rewards)
        return graded._replace(reward=graded.reward**2)

    return grade


FAULT = Fault(
    name="reward-squared",
    numbers=(69,),
    what="rewards are squared after grading",
    plant=lambda: patched("truing.rollouts.workers.calls:grade", _wrong),
    expected=("RWD009",),
)
