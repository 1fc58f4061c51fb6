"""Rewards of rollouts that share a prompt → one advantage per rollout.

Both count rollouts, never samples: a rollout of many turns enters its baseline once.
"""

from typing import Literal

import torch
from torch import Tensor

from truing.errors import ContractError
from truing.ops.checks import check

Scale = Literal["group", "batch", "none"]


def group_advantages(rewards_R: Tensor, group_R: Tensor, scale: Scale, eps: float = 1e-4) -> Tensor:
    """Advantage of each rollout over its group.

    A_i = (r_i − mean_g) / (s + ε), s the sample standard deviation (n − 1) of the group
    ("group", GRPO, https://arxiv.org/abs/2402.03300) or of all rewards ("batch",
    https://arxiv.org/abs/2508.08221); A_i = r_i − mean_g for "none" (Dr. GRPO,
    https://arxiv.org/abs/2503.20783). For "group", |A_i| ≤ (G − 1)/√G however small s is.

    Args:
        rewards_R: [R] float, reward units.
        group_R: [R] int64, which group each rollout is of; any labels, in any order.
        scale: what to divide by.
        eps: ε, reward units.

    Returns:
        [R] like ``rewards_R``; exactly 0 throughout a group of equal rewards. A group of one, or a
        reward that is not finite, raises ContractError; R = 0 gives [0].
    """
    rewards_R64, same_RR = _grouped(rewards_R, group_R)
    advantage_R = rewards_R64 - _group_mean(rewards_R64, same_RR)
    if scale == "group":
        size_R = same_RR.sum(dim=1)
        variance_R = _group_mean(advantage_R**2, same_RR) * size_R / (size_R - 1)
        advantage_R = advantage_R / (variance_R.sqrt() + eps)
    elif scale == "batch" and len(rewards_R):
        advantage_R = advantage_R / (rewards_R64.std() + eps)
    return _zero_among_equals(advantage_R, rewards_R64, same_RR).to(rewards_R.dtype)


def leave_one_out(rewards_R: Tensor, group_R: Tensor) -> Tensor:
    """Advantage of each rollout over the mean of the others in its group.

    A_i = r_i − Σ_{j≠i} r_j / (G − 1) = G/(G − 1) · (r_i − mean_g)
    (RLOO, https://arxiv.org/abs/2402.14740): its baseline does not depend on r_i, so it is unbiased.

    Args:
        rewards_R: [R] float, reward units.
        group_R: [R] int64, which group each rollout is of; any labels, in any order.

    Returns:
        [R] like ``rewards_R``; exactly 0 throughout a group of equal rewards. A group of one, or a
        reward that is not finite, raises ContractError; R = 0 gives [0].
    """
    rewards_R64, same_RR = _grouped(rewards_R, group_R)
    size_R = same_RR.sum(dim=1)
    advantage_R = (rewards_R64 - _group_mean(rewards_R64, same_RR)) * size_R / (size_R - 1)
    return _zero_among_equals(advantage_R, rewards_R64, same_RR).to(rewards_R.dtype)


def _grouped(rewards_R: Tensor, group_R: Tensor) -> tuple[Tensor, Tensor]:
    """Rewards [R] in float64, and which rollouts share a group: [R, R] bool."""
    check(rewards_R=(rewards_R, "float"), group_R=(group_R, "int64"))
    if not torch.isfinite(rewards_R).all():
        raise ContractError("an advantage needs rewards that are finite", got=rewards_R)
    same_RR = group_R[:, None] == group_R[None, :]
    alone_R = same_RR.sum(dim=1) == 1
    if alone_R.any():
        raise ContractError(
            "a group of one has no baseline",
            got=f"group {int(group_R[alone_R][0])} of one rollout",
            expected="two rollouts or more",
            remedy="sample more rollouts per prompt, or drop the group and say so",
        )
    return rewards_R.double(), same_RR


def _group_mean(x_R: Tensor, same_RR: Tensor) -> Tensor:
    """The mean over each rollout's group: [R]."""
    return torch.where(same_RR, x_R, 0.0).sum(dim=1) / same_RR.sum(dim=1)


def _zero_among_equals(advantage_R: Tensor, rewards_R: Tensor, same_RR: Tensor) -> Tensor:
    """Advantages [R], exactly 0 where all rewards of a group are equal.

    Without this, rounding of the mean leaves ±1e-17, which a division by ε promotes to a signal.
    """
    different_R = (same_RR & (rewards_R[:, None] != rewards_R)).any(dim=1)
    return advantage_R.masked_fill(~different_R, 0.0)
