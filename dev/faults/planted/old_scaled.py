"""Old log-probabilities have another temperature than new ones."""

from dataclasses import replace

from dev.faults.fault import Fault, patched


def _wrong(real):
    def with_old(samples, learner):
        return [replace(sample, old_logprob=sample.old_logprob * 0.8) for sample in real(samples, learner)]

    return with_old


FAULT = Fault(
    name="old-scaled",
    numbers=(17,),
    what="old log-probabilities are divided by a temperature",
    plant=lambda: patched("truing.learner.step:with_old_logprobs", _wrong),
    expected=("RAT007", "RAT002"),
)
