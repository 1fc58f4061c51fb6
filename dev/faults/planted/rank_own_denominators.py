"""Each rank divides the loss by the rows or tokens of its own share."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def backward(learner, micro, terms_with_denominator, trace, where):
        terms = [term for term, _ in terms_with_denominator]
        rows = [row for row in trace.samples if any(term.has_gradient(row) for term in terms)]
        own = [row for part in learner.micro_batches(rows) if not part.is_padding for row in part.samples]
        if not where.startswith("the doctor"):
            terms_with_denominator = [(term, term.denominator(own)) for term in terms]
        real(learner, micro, terms_with_denominator, trace, where)

    return backward


FAULT = Fault(
    name="rank-own-denominators",
    numbers=(91,),
    what="each rank divides the loss by its own tokens",
    plant=lambda: patched("truing.learner.step:backward", _wrong),
    expected=("DST003",),
    changes={"trainer.ranks": 2, "sft.batch_size": 5},
    seen=("prime-rl#2358", "verl#5625", "miles#3231"),
)
