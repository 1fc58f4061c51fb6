"""Weights of loss terms that adapt."""

from dataclasses import replace

import torch

from dev.faults.fault import Fault, patched

TARGETS = {"grpo.steps": 4, "grpo.learning_rate": 1e-2}


def _around_its_target(real):
    """Move the weight as if its number were as far on the other side of the target."""
    return lambda coef, measured, target, *args: real(coef, 2 * target - measured, target, *args)


KL_WEIGHT_MOVES_AWAY = Fault(
    name="kl-weight-moves-away",
    numbers=(),
    what="the weight of the KL falls while the KL is above its target",
    plant=lambda: patched("truing.learner.coefficients:kl_controller", _around_its_target),
    expected=("OPT017",),
    changes=TARGETS | {"kl.coef": 0.05, "kl.target": 0.001, "kl.horizon": 100},
)


ENTROPY_WEIGHT_MOVES_AWAY = Fault(
    name="entropy-weight-moves-away",
    numbers=(),
    what="the bonus falls while the entropy is below its target",
    plant=lambda: patched("truing.learner.coefficients:entropy_controller", _around_its_target),
    expected=("OPT017",),
    changes=TARGETS | {"entropy.coef": 0.05, "entropy.target": 3.0},
)


KL_WEIGHT_STANDS_STILL = Fault(
    name="kl-weight-stands-still",
    numbers=(),
    what="the weight of the KL never changes, although a target is declared",
    plant=lambda: patched("truing.learner.coefficients:kl_controller", lambda real: lambda coef, *args: coef),
    expected=("OPT017",),
    changes=TARGETS | {"kl.coef": 0.05, "kl.target": 0.001, "kl.horizon": 100},
)


KL_WEIGHT_BY_STEPS = Fault(
    name="kl-weight-by-steps",
    numbers=(),
    what="the controller of the KL counts each step as one rollout",
    plant=lambda: patched(
        "truing.learner.coefficients:kl_controller",
        lambda real: lambda coef, kl, target, rollouts, horizon: real(coef, kl, target, 1, horizon),
    ),
    expected=("OPT017",),
    changes=TARGETS | {"kl.coef": 0.05, "kl.target": 0.001, "kl.horizon": 100},
)


BOOTSTRAP_ONE_STEP_LATE = Fault(
    name="bootstrap-one-step-late",
    numbers=(),
    what="the weight of the demonstrations beside rollouts is that of the step before",
    plant=lambda: patched(
        "truing.learner.coefficients:linear_decay",
        lambda real: lambda step, steps: real(max(step - 1, 0), steps),
    ),
    expected=("OPT017",),
    changes={"bootstrap.steps": 8, "bootstrap.coef": 0.1, "grpo.steps": 3},
)


def _of_first_two(real):
    def has_equal_rewards(group):
        return len({rollout.reward for rollout in group.rollouts[:2]}) == 1

    return has_equal_rewards


GROUPS_DROPPED_BY_TWO = Fault(
    name="groups-dropped-by-two",
    numbers=(),
    what="groups are dropped if the first two of their rewards are equal",
    plant=lambda: patched("truing.rollouts.group_selection:has_equal_rewards", _of_first_two),
    expected=("OPT020",),
    changes={"gates.equal_groups": "drop"},
)


def _largest(real):
    def kl_k3(new_T, ref_T):
        kl_T = real(new_T, ref_T)
        return torch.full_like(kl_T, float(kl_T.nan_to_num(0.0).max()))

    return kl_k3


CAP_OF_LARGEST_TOKEN = Fault(
    name="cap-of-largest-token",
    numbers=(),
    what="kl.cap is compared with the largest KL of each answer, not with the mean",
    plant=lambda: patched("truing.learner.gates:kl_k3", _largest),
    expected=("OPT020",),
    changes=TARGETS | {"kl.cap": 0.3, "kl.cap_action": "skip"},
)


KL_WEIGHT_NOT_RESTORED = Fault(
    name="kl-weight-not-restored",
    numbers=(101,),
    what="a resumed run begins with the recipe's weight of the KL, not that of the checkpoint",
    plant=lambda: patched(
        "truing.trainer.stage_trainer:read_state",
        lambda real: lambda checkpoint: replace(real(checkpoint), coefficients={}),
    ),
    expected=("OPT017",),
    changes={"kl.coef": 0.1, "kl.target": 0.01, "checkpoint_every": 1, "grpo.steps": 5},
    resumed_after=3,
)
