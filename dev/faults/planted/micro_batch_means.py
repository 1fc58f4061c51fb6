"""Each micro-batch has its own mean, and the means are added up."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def loss(logprob, old, advantage, mask, *, objective, denominator, weight_BT=None):
        own = float(len(mask))
        return real(logprob, old, advantage, mask, objective=objective, denominator=own, weight_BT=weight_BT)

    return loss


FAULT = Fault(
    name="micro-batch-means",
    numbers=(56,),
    what="the loss is divided by each micro-batch's own rows",
    plant=lambda: patched("truing.algos.loss_terms:policy_loss", _wrong),
    expected=("MSK003",),
    changes={"optimizer.micro_batch_tokens": 64},
)
