"""The optimizer decays weights without a declaration."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def make_optimizer(cfg, *parts):
        return real(cfg.model_copy(update={"weight_decay": 10.0}), *parts)

    return make_optimizer


FAULT = Fault(
    name="weight-decay-undeclared",
    numbers=(57,),
    what="weights decay without a declaration",
    plant=lambda: patched("truing.learner.learner:make_optimizer", _wrong),
    expected=("OPT003",),
)
