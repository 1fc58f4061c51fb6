"""Rewards are clipped at 0.5 after grading."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def grade(rollout, rewards):
        graded = real(rollout, rewards)
        return graded._replace(reward=min(graded.reward, 0.5))

    return grade


FAULT = Fault(
    name="reward-clipped",
    numbers=(69,),
    what="rewards are clipped at 0.5 after grading",
    plant=lambda: patched("truing.rollouts.workers.calls:grade", _wrong),
    expected=("RWD009",),
)
