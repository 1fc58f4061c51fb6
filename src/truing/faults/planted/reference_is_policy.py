"""The reference is the live policy under another name."""

from truing.faults.fault import Fault, patched


def _wrong(real):
    def freeze(policy, **kwargs):
        reference = real(policy, **kwargs)
        reference.policy = policy
        return reference

    return freeze


FAULT = Fault(
    name="reference-is-policy",
    numbers=(50,),
    what="the reference shares the policy's weights",
    plant=lambda: patched("truing.learner.learner:make_reference", _wrong),
    expected=("REF001", "REF003"),
    changes={"kl.coef": 0.05},
)
