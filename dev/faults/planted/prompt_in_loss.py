"""The mask of the loss covers the prompt too."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def loss(logprob, old, advantage, mask, **kwargs):
        # each row's own advantage, on all of its tokens
        row = advantage.nan_to_num().sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
        everything = mask.new_ones(mask.shape)
        everything[:, 0] = False
        return real(logprob, old.nan_to_num(), row.expand_as(mask), everything, **kwargs)

    return loss


FAULT = Fault(
    name="prompt-in-loss",
    numbers=(1,),
    what="the policy loss trains the prompt too",
    plant=lambda: patched("truing.algos.loss_terms:policy_loss", _wrong),
    expected=("MSK003", "MSK001"),
)
