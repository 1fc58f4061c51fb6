"""Weights of loss terms that adapt to a measured number, from one step to the next."""


def kl_controller(coef: float, kl: float, target: float, rollouts: int, horizon: float) -> float:
    """Return the next weight of the KL: larger if the KL is above its target, else smaller.

    β' = β (1 + clip(KL / target − 1, −0.2, 0.2) · n / horizon)  (https://arxiv.org/abs/1909.08593 §2.2)

    Args:
        coef: β, the weight of the step.
        kl: nats per token, measured in the step.
        target: nats per token.
        rollouts: n, of the step.
        horizon: rollouts over which the weight changes by at most a fifth.

    Returns:
        β' ≥ 0; β itself at the target.
    """
    error = min(max(kl / target - 1, -0.2), 0.2)
    return max(coef * (1 + error * rollouts / horizon), 0.0)


def entropy_controller(coef: float, entropy: float, target: float, step: float) -> float:
    """Return the next weight of the entropy bonus: larger if the entropy is below its target, else smaller.

    α' = max(α + step · sign(target − H), 0)  (https://arxiv.org/abs/2505.22312 §3.2)

    Args:
        coef: α, the weight of the step.
        entropy: H, nats per token, measured in the step.
        target: nats per token.
        step: what is added or subtracted.

    Returns:
        α' ≥ 0; α itself at the target.
    """
    return max(coef + step * ((entropy < target) - (entropy > target)), 0.0)


def linear_decay(step: int, steps: int) -> float:
    """Return a weight that falls from 1 in the first step to 0 after ``steps`` steps.

    w = max(1 − step / steps, 0)

    Args:
        step: steps done.
        steps: number of steps of the decay; with 0 the weight is 0 from the start.

    Returns:
        In [0, 1].
    """
    return max(1 - step / steps, 0.0) if steps else 0.0
