"""Every minibatch of an epoch is the first one."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def minibatches(samples, cfg, key):
        batches = list(real(samples, cfg, key))
        return iter([batches[0]] * len(batches))

    return minibatches


FAULT = Fault(
    name="first-minibatch-again",
    numbers=(63,),
    what="every minibatch is the first one of its batch",
    plant=lambda: patched("truing.learner.step:minibatches", _wrong),
    expected=("OPT011",),
    changes={"grpo.minibatches": 2},
)
