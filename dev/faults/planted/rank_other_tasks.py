"""The second rank shuffles the tasks with other random numbers."""

from dev.faults.fault import Fault, patched

FAULT = Fault(
    name="rank-other-tasks",
    numbers=(95,),
    what="one rank shuffles the tasks of an epoch otherwise",
    plant=lambda: patched(
        "truing.learner.session:permutation", lambda real: lambda *args: real(*args, "second rank")
    ),
    expected=(),
    refusal="the ranks differ in the tasks of a step",
    changes={"trainer.ranks": 2},
    on_ranks=(1,),
)
