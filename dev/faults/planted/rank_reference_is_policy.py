"""The second rank scores its rows with the policy in place of the reference."""

from dev.faults.fault import Fault, patched
from truing.models.forward.score import score


def _wrong(real):
    def make_reference(policy, **options):
        reference = real(policy, **options)
        reference.score = lambda batch, mask_BT: score(policy, batch, mask_BT)
        return reference

    return make_reference


FAULT = Fault(
    name="rank-reference-is-policy",
    numbers=(94,),
    what="one rank scores its rows with the policy in place of the reference",
    plant=lambda: patched("truing.learner.learner:make_reference", _wrong),
    expected=("REF004",),
    changes={"trainer.ranks": 2, "trainer.replicate": 2, "kl.coef": 0.05},
    on_ranks=(1,),
)
