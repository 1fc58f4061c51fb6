"""The second rank begins with other weights of a new adapter."""

from dev.faults.fault import Fault, patched

FAULT = Fault(
    name="rank-other-weights",
    numbers=(96,),
    what="one rank begins with another adapter, drawn from another seed",
    plant=lambda: patched(
        "truing.learner.restore:seed_of", lambda real: lambda *key: real(*key, "second rank")
    ),
    expected=(),
    refusal="the ranks differ in the initial weights",
    changes={"trainer.ranks": 2, "lora": {"rank": 4}},
    on_ranks=(1,),
)
