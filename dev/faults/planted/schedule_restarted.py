"""The schedule of learning rates begins again after a resume."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    first = list[int]()

    def set_learning_rates(learner, step):
        first.append(step)
        real(learner, step - first[0])

    return set_learning_rates


FAULT = Fault(
    name="schedule-restarted",
    numbers=(100,),
    what="after a resume the schedule of learning rates begins again",
    plant=lambda: patched("truing.learner.learner:Learner.set_learning_rates", _wrong),
    expected=("OPT004",),
    changes={"trainer.ranks": 2, "optimizer.schedule": "linear", "checkpoint_every": 1},
    resumed_after=2,
    seen=("miles#2661",),
)
