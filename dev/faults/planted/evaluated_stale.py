"""Evaluations sample with the weights of the last training step, since nothing is published before them."""

from dev.faults.fault import Fault, patched


def _unpublished(real):
    return lambda session, version: {}


def _wrong(real):
    def evaluate(loop, name, stage, step):
        with patched("truing.learner.session:Session.publish", _unpublished):
            return real(loop, name, stage, step)

    return evaluate


FAULT = Fault(
    name="evaluated-stale",
    numbers=(102,),
    what="evaluations sample with the weights of an earlier publication",
    plant=lambda: patched("truing.trainer.loop:Loop.evaluate", _wrong),
    expected=(),
    refusal="the evaluation has other weights than declared",
)
