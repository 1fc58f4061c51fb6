"""The first micro-batch is used again as the second."""

from truing.faults.fault import Fault, patched


def _wrong(real):
    def micro_batches(self, model, samples):
        made = list(real(self, model, samples))
        return [made[0], *made[:1], *made[2:]] if len(made) > 1 else made

    return micro_batches


FAULT = Fault(
    name="row-twice",
    numbers=(63,),
    what="the second micro-batch is the first one again",
    plant=lambda: patched("truing.learner.memory_budget:MemoryBudget.micro_batches", _wrong),
    expected=("OPT011",),
    changes={"optimizer.micro_batch_tokens": 64},
)
