"""The gradient of every second micro-batch is cleared."""

from itertools import count

from dev.faults.fault import Fault, patched


def _wrong(real):
    calls = count()

    def backward(learner, micro, divided, trace, where):
        if where.startswith("the doctor") or next(calls) % 2 == 0:
            real(learner, micro, divided, trace, where)

    return backward


FAULT = Fault(
    name="micro-batch-lost",
    numbers=(56,),
    what="every second micro-batch is lost",
    plant=lambda: patched("truing.learner.step:backward", _wrong),
    expected=("MSK003", "MSK007"),
    changes={"optimizer.micro_batch_tokens": 64},
)
