"""A resume restores the weights, and not the second rank's part of the optimizer's state."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def restore(learner, folder):
        real(learner, folder)
        for state in learner.optimizer.state.values():
            state["exp_avg"].to_local().zero_()

    return restore


FAULT = Fault(
    name="rank-moments-not-restored",
    numbers=(101,),
    what="a resumed run lacks one rank's part of the optimizer's moments",
    plant=lambda: patched("truing.learner.learner:Learner.restore", _wrong),
    expected=("OPT010",),
    changes={"trainer.ranks": 2, "checkpoint_every": 1},
    on_ranks=(1,),
    resumed_after=2,
)
