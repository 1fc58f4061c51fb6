"""The KL loss leaves out the last token of each answer."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def kl_mask(origin_T):
        mask_T = real(origin_T).clone()
        mask_T[mask_T.nonzero()[1:, 0][-1:]] = False
        return mask_T

    return kl_mask


FAULT = Fault(
    name="kl-mask-short",
    numbers=(104,),
    what="the KL loss leaves out the last token of each answer",
    plant=lambda: patched("truing.rollouts.flatten:kl_mask", _wrong),
    expected=("MSK002",),
    changes={"kl.coef": 0.05},
)
