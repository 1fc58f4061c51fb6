"""The schedule of the second rank begins again after a resume."""

from truing.faults.fault import Fault, patched


def _wrong(real):
    first = list[int]()

    def set_learning_rates(learner, step):
        first.append(step)
        real(learner, step - first[0])

    return set_learning_rates


FAULT = Fault(
    name="rank-schedule-restarted",
    numbers=(
        99,
        100,
    ),
    what="after a resume the schedule of one rank begins again",
    plant=lambda: patched("truing.learner.learner:Learner.set_learning_rates", _wrong),
    expected=("DST001",),
    changes={"trainer.ranks": 2, "optimizer.schedule": "linear", "checkpoint_every": 1},
    on_ranks=(1,),
    resumed_after=2,
    seen=("miles#2661",),
)
