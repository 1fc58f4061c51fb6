"""The KL term moves the policy away from the reference."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    return lambda *args, **kwargs: -real(*args, **kwargs)


FAULT = Fault(
    name="kl-sign",
    numbers=(48,),
    what="the KL term has the wrong sign",
    plant=lambda: patched("truing.algos.loss_terms:kl_loss", _wrong),
    expected=("MSK003",),
    changes={"kl.coef": 0.5},
)
