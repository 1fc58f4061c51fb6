"""Rewards and values along a trajectory → advantages and returns per token.

The decision process has one step per masked (SAMPLED) token. Tokens between two of them (a tool's
result, template text) belong to the transition: their values are not read, and γ and λ are not applied.
Results are NaN outside the mask, and constants.
"""

import torch
from torch import Tensor

from truing.errors import InvalidValueError
from truing.ops.argument_checks import check_tensors


def gae(
    reward_BT: Tensor, value_BT: Tensor, mask_BT: Tensor, bootstrap_B: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Return advantages and returns by generalized advantage estimation along each row's masked tokens.

    δ_k = r_k + γ V_{k+1} − V_k;  A_k = δ_k + γλ A_{k+1};  R_k = A_k + V_k, k over masked tokens only
    (https://arxiv.org/abs/1506.02438).

    Args:
        reward_BT: [B, T] float, reward of token t. Outside the mask it must be 0 or NaN, so that no
            reward is lost.
        value_BT: [B, T] float, reward units, V of the state before token t.
        mask_BT: [B, T] bool, the steps of the decision process.
        bootstrap_B: [B] float, V of the state after the end: 0 where the episode ended, the critic's
            value where it was cut off.
        gamma: γ, discount per step.
        lam: λ, trace decay per step.

    Returns:
        Advantage and return, both [B, T] like ``reward_BT``, NaN outside the mask (so all NaN in a row
        with an empty mask). NaN inside the mask, or in ``bootstrap_B``, raises InvalidValueError.
    """
    check_tensors(
        reward_BT=(reward_BT, "float"),
        value_BT=(value_BT, "float"),
        mask_BT=(mask_BT, "bool"),
        bootstrap_B=(bootstrap_B, "float"),
    )
    _check_inputs(reward_BT, value_BT, mask_BT, bootstrap_B)
    reward_BT64, value_BT64 = reward_BT.detach().double(), value_BT.detach().double()
    advantage_BT = torch.full_like(reward_BT64, float("nan"))
    next_value_B = bootstrap_B.detach().double()
    next_advantage_B = torch.zeros_like(next_value_B)
    for t in reversed(range(reward_BT.shape[1])):
        on_B = mask_BT[:, t]
        delta_B = reward_BT64[:, t] + gamma * next_value_B - value_BT64[:, t]
        next_advantage_B = torch.where(on_B, delta_B + gamma * lam * next_advantage_B, next_advantage_B)
        next_value_B = torch.where(on_B, value_BT64[:, t], next_value_B)
        advantage_BT[on_B, t] = next_advantage_B[on_B]
    return advantage_BT.to(reward_BT.dtype), (advantage_BT + value_BT64).to(reward_BT.dtype)


def discounted_returns(reward_BT: Tensor, mask_BT: Tensor, gamma: float) -> Tensor:
    """Return the discounted sum of the rewards from each masked token on.

    R_k = Σ_{l≥0} γˡ r_{k+l}, k over masked tokens only: GAE with V = 0 and λ = 1
    (http://incompleteideas.net/book/the-book-2nd.html eq. 3.8).

    Args:
        reward_BT: [B, T] float, reward of token t; 0 or NaN outside the mask.
        mask_BT: [B, T] bool, the steps of the decision process.
        gamma: γ, discount per step.

    Returns:
        [B, T] like ``reward_BT``, NaN outside the mask (so all NaN in a row with an empty mask).
    """
    check_tensors(reward_BT=(reward_BT, "float"), mask_BT=(mask_BT, "bool"))
    zeros_BT = torch.zeros_like(reward_BT)
    return gae(reward_BT, zeros_BT, mask_BT, zeros_BT.new_zeros(len(zeros_BT)), gamma, lam=1.0)[1]


def whiten(advantage_BT: Tensor, mask_BT: Tensor, eps: float = 1e-8) -> Tensor:
    """Return advantages shifted and scaled to mean 0 and standard deviation 1 over the whole batch.

    Â = (A − mean) / (s + ε), both over all masked tokens of the batch, s with n − 1. Not per
    trajectory, which would erase the sign of its outcome (https://arxiv.org/abs/2006.05990).

    Args:
        advantage_BT: [B, T] float, reward units; may be NaN where the mask is off.
        mask_BT: [B, T] bool, the tokens that count.
        eps: ε, reward units.

    Returns:
        [B, T], unitless, NaN outside the mask; exactly 0 where all are equal. Fewer than two masked
        tokens have no deviation and raise InvalidValueError.
    """
    check_tensors(advantage_BT=(advantage_BT, "float"), mask_BT=(mask_BT, "bool"))
    inside_N = advantage_BT.detach()[mask_BT].double()
    if len(inside_N) < 2:
        raise InvalidValueError(
            "whiten needs a standard deviation", got=f"{len(inside_N)} masked tokens", expected="≥ 2"
        )
    whitened_BT = (advantage_BT.detach().double() - inside_N.mean()) / (inside_N.std() + eps)
    if inside_N.min() == inside_N.max():
        whitened_BT = torch.zeros_like(whitened_BT)
    return whitened_BT.masked_fill(~mask_BT, float("nan")).to(advantage_BT.dtype)


def explained_variance(value_BT: Tensor, returns_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the explained variance of the returns by the values.

    EV = 1 − Σ (R − V)² / Σ (R − mean R)² over masked tokens
    (https://en.wikipedia.org/wiki/Coefficient_of_determination): 1 is perfect, 0 no better than a
    constant, negative worse. Unlike 1 − Var(R − V)/Var(R) it counts a constant offset as an error.

    Args:
        value_BT: [B, T] float, reward units, predictions.
        returns_BT: [B, T] float, reward units, targets.
        mask_BT: [B, T] bool, the tokens that count.

    Returns:
        [] float64, ≤ 1; NaN where it is undefined: an empty mask, or returns that are all equal.
    """
    check_tensors(value_BT=(value_BT, "float"), returns_BT=(returns_BT, "float"), mask_BT=(mask_BT, "bool"))
    value_N, returns_N = value_BT.detach()[mask_BT].double(), returns_BT.detach()[mask_BT].double()
    if len(returns_N) == 0 or returns_N.min() == returns_N.max():
        return returns_N.new_tensor(float("nan"))
    return 1 - (returns_N - value_N).square().sum() / (returns_N - returns_N.mean()).square().sum()


def _check_inputs(reward_BT: Tensor, value_BT: Tensor, mask_BT: Tensor, bootstrap_B: Tensor) -> None:
    """Raise where a needed number is missing, or a reward lies outside the mask."""
    numbers = {"reward_BT": reward_BT[mask_BT], "value_BT": value_BT[mask_BT], "bootstrap_B": bootstrap_B}
    for name, required in numbers.items():
        if not torch.isfinite(required).all():
            raise InvalidValueError(
                f"{name} is not finite at a masked token", expected="a number (0 where terminated)"
            )
    outside_BT = ~mask_BT & ~reward_BT.isnan() & (reward_BT != 0)
    if outside_BT.any():
        row, t = (int(at) for at in outside_BT.nonzero()[0])
        raise InvalidValueError(
            f"reward_BT[{row}, {t}] lies outside the mask and would be lost",
            got=float(reward_BT[row, t]),
            expected="0 or NaN",
            remedy="assign the reward to the last sampled token before it",
        )
