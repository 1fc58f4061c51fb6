"""Policy and reference are exchanged in the KL."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    return lambda new, ref, estimator: real(ref, new, estimator)


FAULT = Fault(
    name="kl-swapped",
    numbers=(48,),
    what="policy and reference are exchanged in the KL estimator",
    plant=lambda: patched("truing.ops.losses:kl", _wrong),
    expected=("MSK003",),
    changes={"kl.coef": 0.5, "kl.estimator": "k3", "grpo.learning_rate": 0.01},
)
