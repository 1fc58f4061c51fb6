"""The loss trains every token after the first sampled one, including tool results."""

from dev.faults.fault import Fault, patched
from dev.faults.healthy_runs import CALLS


def _wrong(real):
    def loss(logprob, old, advantage, mask, **kwargs):
        after = mask.cumsum(1) > 0
        before_the_end = mask.flip(1).cumsum(1).flip(1) > 0
        row = advantage.nan_to_num().sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
        return real(logprob, old.nan_to_num(), row.expand_as(mask), after & before_the_end, **kwargs)

    return loss


FAULT = Fault(
    name="tool-results-in-loss",
    numbers=(2,),
    what="the policy loss trains tool results",
    plant=lambda: patched("truing.algos.loss_terms:policy_loss", _wrong),
    expected=("MSK003",),
    changes=CALLS,
)
