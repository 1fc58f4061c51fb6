"""The entropy bonus is added to the loss: entropy is minimised."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    return lambda *args, **kwargs: -real(*args, **kwargs)


FAULT = Fault(
    name="entropy-sign",
    numbers=(54,),
    what="the entropy bonus has the wrong sign",
    plant=lambda: patched("truing.algos.loss_terms:entropy_loss", _wrong),
    expected=("OPT006",),
    changes={"entropy.coef": 0.05},
)
