"""Invalid attempts are masked whole: the policy never unlearns them."""

from dev.faults.fault import Fault, patched
from truing.rollouts.flatten import without_policy_term
from truing.types.token import Excluded


def _wrong(real):
    def gated(samples, rollouts, setting):
        return [
            without_policy_term(sample, Excluded.STRUCTURE) if sample.reward < 0.2 else sample
            for sample in real(samples, rollouts, setting)
        ]

    return gated


FAULT = Fault(
    name="bad-attempts-masked",
    numbers=(60,),
    what="attempts that failed are masked whole",
    plant=lambda: patched("truing.learner.step_samples:_without_truncated", _wrong),
    expected=("MSK006", "MSK002"),
)
