"""The loss is a mean over tokens instead of the declared mean over sequences."""

from dataclasses import replace

from dev.faults.fault import Fault, patched


def _wrong(real):
    def loss(logprob, old, advantage, mask, *, objective, denominator, weight_BT=None):
        tokens = replace(objective, aggregation="token_mean")
        return real(
            logprob,
            old,
            advantage,
            mask,
            objective=tokens,
            denominator=float(mask.sum()),
            weight_BT=weight_BT,
        )

    return loss


FAULT = Fault(
    name="token-mean",
    numbers=(36, 56),
    what="the loss is a mean over tokens instead of the declared mean over sequences",
    plant=lambda: patched("truing.algos.loss_terms:policy_loss", _wrong),
    expected=("MSK003",),
)
