"""The second rank does not sync its reference."""

from dev.faults.fault import Fault, patched

FAULT = Fault(
    name="rank-reference-stale",
    numbers=(94,),
    what="one rank keeps the reference of before a sync",
    plant=lambda: patched(
        "truing.learner.learner:Learner.sync_reference", lambda real: lambda learner, steps: False
    ),
    expected=("DST001",),
    changes={"trainer.ranks": 2, "trainer.replicate": 2, "kl.coef": 0.05, "reference.sync_every": 1},
    on_ranks=(1,),
)
