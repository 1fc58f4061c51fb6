"""A second computation of advantages and returns in Python's floats."""

import math
from collections.abc import Sequence


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean, from an exactly rounded sum."""
    return math.fsum(values) / len(values)


def sample_std(values: Sequence[float]) -> float:
    """Return the sample standard deviation (n − 1); 0 for one value."""
    if len(values) < 2:
        return 0.0
    middle = mean(values)
    return math.sqrt(math.fsum((x - middle) ** 2 for x in values) / (len(values) - 1))


GROUP_FORMULAS = ("group", "group_population", "batch", "none", "loo", "loo_scaled")


def group_advantage(
    reward: float, group: Sequence[float], batch: Sequence[float], formula: str, eps: float
) -> float:
    """Return the advantage of one rollout.

    group             (r − mean_g) / (std_g + ε)                    https://arxiv.org/abs/2402.03300
    group_population  the same with the population deviation of the group
    batch             (r − mean_g) / (std + ε)                      https://arxiv.org/abs/2508.08221
    none              r − mean_g                                    https://arxiv.org/abs/2503.20783
    loo               r − mean of the others                        https://arxiv.org/abs/2402.14740
    loo_scaled        the same / (std of the others + ε); NaN where that is 0: trainers differ there

    Args:
        reward: of the rollout.
        group: rewards of all rollouts of its group, including its own.
        batch: rewards of all rollouts of the step.
        formula: one of ``GROUP_FORMULAS``.
        eps: ε, reward units.

    Returns:
        Exactly 0 in a group of equal rewards.
    """
    if max(group) == min(group):
        return 0.0
    centred, count = reward - mean(group), len(group)
    match formula:
        case "loo":
            return centred * count / (count - 1)
        case "none":
            return centred
        case "loo_scaled":
            others = list(group)
            others.remove(reward)
            spread = sample_std(others)
            centred *= count / (count - 1)
            return centred / (spread + eps) if spread > 0 else math.nan
        case "batch":
            return centred / (sample_std(batch) + eps)
        case _:
            narrower = math.sqrt((count - 1) / count) if formula == "group_population" else 1.0
            return centred / (sample_std(group) * narrower + eps)


def gae(
    rewards: Sequence[float],
    values: Sequence[float],
    last_value: float,
    gamma: float,
    lam: float,
) -> tuple[list[float], list[float]]:
    """Return generalised advantage estimation over one episode (https://arxiv.org/abs/1506.02438 eq. 16).

    δ_k = r_k + γ V_{k+1} − V_k, A_k = δ_k + γ λ A_{k+1}; returns are A_k + V_k.

    Args:
        rewards: of each choice.
        values: V of the state before each choice.
        last_value: V of the state after the last choice; 0 if the episode ended there.
        gamma: discount per choice.
        lam: λ.

    Returns:
        Advantages and returns, one for each choice.
    """
    advantages: list[float] = []
    following, after = 0.0, last_value
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        following = reward + gamma * after - value + gamma * lam * following
        after = value
        advantages.append(following)
    advantages.reverse()
    return advantages, [a + v for a, v in zip(advantages, values, strict=True)]
