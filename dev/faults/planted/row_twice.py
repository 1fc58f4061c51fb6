"""The first micro-batch is used again as the second."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def micro_batches(self, model, samples):
        batches = list(real(self, model, samples))
        return [batches[0], *batches[:1], *batches[2:]] if len(batches) > 1 else batches

    return micro_batches


FAULT = Fault(
    name="row-twice",
    numbers=(63,),
    what="the second micro-batch is the first one again",
    plant=lambda: patched("truing.learner.memory_budget:MemoryBudget.micro_batches", _wrong),
    expected=("OPT011",),
    changes={"optimizer.micro_batch_tokens": 64},
)
