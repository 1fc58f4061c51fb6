"""A resume restores the weights, and not the optimizer's state."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def restore(learner, folder):
        real(learner, folder)
        learner.optimizer.state.clear()

    return restore


FAULT = Fault(
    name="moments-not-restored",
    numbers=(101,),
    what="a resumed run begins with a new optimizer state",
    plant=lambda: patched("truing.learner.learner:Learner.restore", _wrong),
    expected=("OPT010",),
    changes={"trainer.ranks": 2, "checkpoint_every": 1},
    resumed_after=2,
)
