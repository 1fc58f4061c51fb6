"""The loss is maximised."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    return lambda *args, **kwargs: -real(*args, **kwargs)


FAULT = Fault(
    name="advantage-sign",
    numbers=(32,),
    what="the policy loss has the wrong sign",
    plant=lambda: patched("truing.algos.loss_terms:policy_loss", _wrong),
    expected=("MSK003",),
)
