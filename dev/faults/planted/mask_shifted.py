"""The mask of the loss is one token too early: it begins with the last token of the prompt."""

from dev.faults.fault import Fault, patched


def _early(real):
    def loss(logprob, old, advantage, mask, **kwargs):
        shifted = mask.roll(-1, dims=1)
        filled = advantage.nan_to_num().where(mask, advantage.nan_to_num().roll(-1, dims=1))
        return real(logprob, old.nan_to_num(), filled, shifted, **kwargs)

    return loss


FAULT = Fault(
    name="mask-shifted",
    numbers=(3,),
    what="the mask of the policy loss is one token too early",
    plant=lambda: patched("truing.algos.loss_terms:policy_loss", _early),
    expected=("MSK003",),
)
