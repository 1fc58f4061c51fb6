"""Settings of the optimizer that hold in some optimizer steps, or for one group of weights, alone."""

from dev.faults.fault import Fault, patched
from dev.faults.planted.later_steps import CRITIC, INNER
from truing.learner.optimizer import gradient_norm


def _number(step_name):
    """Return the number of an optimizer step within its step."""
    return int(step_name.rpartition(" ")[2])


def _stepped(make):
    return patched("truing.learner.step:clip_and_step", make)


def _at_half_rate_later(real):
    def clip_and_step(optimizer, max_norm, step_name, *parts):
        rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] /= 2 if _number(step_name) else 1
        norms = real(optimizer, max_norm, step_name, *parts)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        return norms

    return clip_and_step


RATE_HALVED_WITHIN_STEP = Fault(
    name="rate-halved-within-step",
    numbers=(120,),
    what="the rate is halved after the first optimizer step of each step",
    plant=lambda: _stepped(_at_half_rate_later),
    expected=("OPT003",),
    changes=INNER,
)


def _clipped_last(real):
    def clip_and_step(optimizer, max_norm, step_name, *parts):
        earlier = "grpo" in step_name and _number(step_name) < 3
        return real(optimizer, 1e9 if earlier else max_norm, step_name, *parts)

    return clip_and_step


CLIP_IN_LAST_OPTIMIZER_STEP_ALONE = Fault(
    name="clip-in-last-optimizer-step-alone",
    numbers=(120,),
    what="the gradient is clipped in the last of four optimizer steps alone",
    plant=lambda: _stepped(_clipped_last),
    expected=("OPT008",),
    changes=INNER | {"optimizer.max_grad_norm": 0.02},
)


def _policy_clipped(real):
    def clip_and_step(optimizer, max_norm, step_name, *parts):
        of_critic = [float(gradient_norm(part)) for part in parts[1:]]
        return [*real(optimizer, max_norm, step_name, parts[0]), *of_critic]

    return clip_and_step


CRITIC_NOT_CLIPPED = Fault(
    name="critic-not-clipped",
    numbers=(120,),
    what="the critic's gradient is not clipped",
    plant=lambda: _stepped(_policy_clipped),
    expected=("OPT008",),
    changes=CRITIC | {"optimizer.max_grad_norm": 0.02},
)
