"""A sync of the reference does not reach the shard of the second rank."""

from dev.faults.fault import Fault, patched

FAULT = Fault(
    name="rank-reference-shard-stale",
    numbers=(94,),
    what="a sync of the reference leaves out the shard of one rank",
    plant=lambda: patched("truing.models.reference:copy_whole", lambda real: lambda target, source: None),
    expected=(),
    refusal="the sync gave the reference wrong weights",
    changes={"trainer.ranks": 2, "kl.coef": 0.05, "reference.sync_every": 1},
    on_ranks=(1,),
)
