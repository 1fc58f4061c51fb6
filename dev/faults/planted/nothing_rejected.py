"""Rejection sampling rejects nothing."""

from dataclasses import replace

from dev.faults.fault import Fault, patched


def _wrong(real):
    def keep_good(rollouts, cfg, mask):
        return real["rft"].to_samples(rollouts, cfg.model_copy(update={"min_reward": -1.0}), mask)

    return {**real, "rft": replace(real["rft"], to_samples=keep_good)}


FAULT = Fault(
    name="nothing-rejected",
    numbers=(66,),
    what="answers below the threshold become demonstrations",
    plant=lambda: patched("truing.learner.learner:ALGORITHMS", _wrong),
    expected=("RWD008",),
    changes={"stages": ["sft", "rft"], "rft.steps": 2, "rft.learning_rate": 1e-3},
)
