"""The second rank drops the result of every second micro-batch."""

from itertools import count

from dev.faults.fault import Fault, patched


def _wrong(real):
    calls = count()

    def backward(learner, micro, terms_with_denominator, trace, where):
        is_dropped = not where.startswith("the doctor") and next(calls) % 2
        real(
            learner,
            micro._replace(is_padding=True) if is_dropped else micro,
            terms_with_denominator,
            trace,
            where,
        )

    return backward


FAULT = Fault(
    name="rank-skips-micro-batch",
    numbers=(93,),
    what="one rank drops every second micro-batch",
    plant=lambda: patched("truing.learner.step:backward", _wrong),
    expected=("DST002",),
    changes={"trainer.ranks": 2, "optimizer.micro_batch_tokens": 64},
    on_ranks=(1,),
)
