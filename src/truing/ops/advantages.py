"""Rewards of rollouts that share a prompt → one advantage per rollout.

Baselines count rollouts, never samples: a rollout of many turns enters its baseline once.
"""

from typing import Literal

import torch
from torch import Tensor

from truing.errors import InvalidValueError
from truing.ops.argument_checks import check_choice, check_tensors

Scale = Literal["group", "batch", "none"]


def group_advantages(rewards_R: Tensor, group_R: Tensor, scale: Scale, eps: float = 1e-4) -> Tensor:
    """Return the advantage of each rollout over its group.

    A_i = (r_i − mean_g) / (s + ε), s the sample standard deviation (n − 1) of the group
    ("group", GRPO, https://arxiv.org/abs/2402.03300) or of all rewards ("batch",
    https://arxiv.org/abs/2508.08221); A_i = r_i − mean_g for "none" (Dr. GRPO,
    https://arxiv.org/abs/2503.20783). For "group", |A_i| ≤ (G − 1)/√G however small s is.

    Args:
        rewards_R: [R] float, reward units.
        group_R: [R] int64, the group of each rollout; any labels, in any order.
        scale: what to divide by.
        eps: ε, reward units.

    Returns:
        [R] like ``rewards_R``; exactly 0 throughout a group of equal rewards. A group of one, or a
        reward that is not finite, raises InvalidValueError; R = 0 gives [0].
    """
    check_choice("scale", scale, Scale)
    rewards_R64, index_R, size_R = _group_index(rewards_R, group_R)
    advantage_R = rewards_R64 - _group_sum(rewards_R64, index_R) / size_R
    if scale == "group":
        variance_R = _group_sum(advantage_R**2, index_R) / (size_R - 1)
        advantage_R = advantage_R / (variance_R.sqrt() + eps)
    elif scale == "batch" and len(rewards_R):
        advantage_R = advantage_R / (rewards_R64.std() + eps)
    return _zero_among_equals(advantage_R, rewards_R64, index_R).to(rewards_R.dtype)


def leave_one_out(rewards_R: Tensor, group_R: Tensor) -> Tensor:
    """Return the advantage of each rollout over the mean of the others in its group.

    A_i = r_i − Σ_{j≠i} r_j / (G − 1) = G/(G − 1) · (r_i − mean_g)
    (RLOO, https://arxiv.org/abs/2402.14740): its baseline does not depend on r_i, so it is unbiased.

    Args:
        rewards_R: [R] float, reward units.
        group_R: [R] int64, the group of each rollout; any labels, in any order.

    Returns:
        [R] like ``rewards_R``; exactly 0 throughout a group of equal rewards. A group of one, or a
        reward that is not finite, raises InvalidValueError; R = 0 gives [0].
    """
    rewards_R64, index_R, size_R = _group_index(rewards_R, group_R)
    others_R = (_group_sum(rewards_R64, index_R) - rewards_R64) / (size_R - 1)
    return _zero_among_equals(rewards_R64 - others_R, rewards_R64, index_R).to(rewards_R.dtype)


def turn_returns(rewards_R: Tensor, turn_rewards_RK: Tensor) -> Tensor:
    """Return the return of each rollout from each turn on: its reward less the rewards of earlier turns.

    G_{i,k} = r_i − Σ_{j<k} t_{i,j}, undiscounted, so that the first turn has the whole reward. A rollout that
    ended before turn k keeps the return of its end, and so is in the baseline of every turn.
    Worked example: r = 1.5 with turn rewards of 0.25 and 0.25 → 1.5, 1.25; from a third turn on 1.

    Args:
        rewards_R: [R] float, reward units, including the rewards of turns.
        turn_rewards_RK: [R, K] float, reward units, of turn k; 0 where a rollout has no such turn.

    Returns:
        [R, K] float64.
    """
    check_tensors(rewards_R=(rewards_R, "float"), turn_rewards_RK=(turn_rewards_RK, "float"))
    earlier_RK = turn_rewards_RK.double().cumsum(1) - turn_rewards_RK
    return rewards_R.double()[:, None] - earlier_RK


def _group_index(rewards_R: Tensor, group_R: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return rewards in float64, an index in [0, R) unique to each group, and group sizes: three [R]."""
    check_tensors(rewards_R=(rewards_R, "float"), group_R=(group_R, "int64"))
    if not torch.isfinite(rewards_R).all():
        raise InvalidValueError("an advantage needs finite rewards", got=rewards_R)
    index_R = torch.searchsorted(group_R.sort().values, group_R)  # where the group starts, once sorted
    size_R = _group_sum(torch.ones_like(index_R), index_R)
    if (size_R == 1).any():
        raise InvalidValueError(
            "a group of one has no baseline",
            got=f"group {int(group_R[size_R == 1][0])} of one rollout",
            expected="two rollouts or more",
            remedy="sample more rollouts per prompt, or drop the group",
        )
    return rewards_R.double(), index_R, size_R


def _group_sum(x_R: Tensor, index_R: Tensor) -> Tensor:
    """Return the sum over each rollout's group: [R]."""
    return torch.zeros_like(x_R).index_add(0, index_R, x_R)[index_R]


def _zero_among_equals(advantage_R: Tensor, rewards_R: Tensor, index_R: Tensor) -> Tensor:
    """Return advantages [R], exactly 0 where all rewards of a group are equal.

    Without this, rounding of the mean leaves ±1e-17, which a division by ε turns into a signal.
    """
    high_R = rewards_R.scatter_reduce(0, index_R, rewards_R, "amax", include_self=False)[index_R]
    low_R = rewards_R.scatter_reduce(0, index_R, rewards_R, "amin", include_self=False)[index_R]
    return advantage_R.masked_fill(high_R == low_R, 0.0)
