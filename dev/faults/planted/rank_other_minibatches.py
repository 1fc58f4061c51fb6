"""The second rank splits the samples into other minibatches."""

from dev.faults.fault import Fault, patched

FAULT = Fault(
    name="rank-other-minibatches",
    numbers=(95,),
    what="one rank splits the samples of a step into other minibatches",
    plant=lambda: patched(
        "truing.learner.step:permutation", lambda real: lambda *args: real(*args, "second rank")
    ),
    expected=(),
    refusal="the ranks differ in the rows of a minibatch",
    changes={"trainer.ranks": 2, "grpo.minibatches": 2},
    on_ranks=(1,),
)
