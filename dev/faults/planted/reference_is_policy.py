"""The reference is the live policy under another name."""

from dev.faults.fault import Fault, patched


def _wrong(real):
    def open_learner(*args, **kwargs):
        learner = real(*args, **kwargs)
        if learner.reference is not None:
            learner.reference.policy = learner.model
        return learner

    return open_learner


FAULT = Fault(
    name="reference-is-policy",
    numbers=(50,),
    what="the reference shares the policy's weights",
    plant=lambda: patched("truing.trainer.stage_trainer:open_learner", _wrong),
    expected=("REF001", "REF003"),
    refusal="the reference changed without a sync",
    changes={"kl.coef": 0.05},
)
