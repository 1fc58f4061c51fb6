"""Old log-probabilities come back in another order of rows."""

from collections import defaultdict
from dataclasses import replace

from dev.faults.fault import Fault, patched


def _wrong(real):
    def with_old(samples, learner):
        alike = defaultdict(list)
        for sample in real(samples, learner):
            alike[len(sample), sample.prompt_length].append(sample)
        moved = {
            sample.sample_id: replace(sample, old_logprob=other.old_logprob)
            for each in alike.values()
            for sample, other in zip(each, [*each[1:], each[0]], strict=True)
        }
        return [moved[sample.sample_id] for sample in samples]

    return with_old


FAULT = Fault(
    name="rows-permuted",
    numbers=(33,),
    what="old log-probabilities are those of other rows",
    plant=lambda: patched("truing.learner.step:with_old_logprobs", _wrong),
    expected=("RAT005",),
)
