"""The second rank has another version of a library."""

from dev.faults.fault import Fault, patched

FAULT = Fault(
    name="rank-other-library",
    numbers=(96,),
    what="one rank has another version of transformers",
    plant=lambda: patched(
        "truing.trainer.rank_consistency:version",
        lambda real: lambda library: "0.1" if library == "transformers" else real(library),
    ),
    expected=(),
    refusal="the ranks differ in the version of transformers",
    changes={"trainer.ranks": 2},
    on_ranks=(1,),
)
