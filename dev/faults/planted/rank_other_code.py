"""The second rank runs other code."""

from dev.faults.fault import Fault, patched

FAULT = Fault(
    name="rank-other-code",
    numbers=(96,),
    what="one rank runs another version of the code",
    plant=lambda: patched("truing.trainer.rank_consistency:code_digest", lambda real: lambda: "0" * 16),
    expected=(),
    refusal="the ranks differ in the code of truing",
    changes={"trainer.ranks": 2},
    on_ranks=(1,),
)
