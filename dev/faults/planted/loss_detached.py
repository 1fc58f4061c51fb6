"""The log-probabilities are detached: the loss has a value, and no gradient."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def loss(logprob, *args, **kwargs):
        return real(logprob.detach(), *args, **kwargs) + 0.0 * logprob.sum()

    return loss


FAULT = Fault(
    name="loss-detached",
    numbers=(32,),
    what="the surrogate is detached on both sides",
    plant=lambda: patched("truing.algos.loss_terms:policy_loss", _wrong),
    expected=("MSK003", "OPT005"),
)
