"""Closed forms of steps, written from the papers without any formula of the trainer."""

from collections.abc import Sequence

import torch
from torch import Tensor

from truing.types.sample import Sample
from truing.types.token import Origin

EPS = 1e-4
"""Epsilon of the advantage denominator, reward units."""


def advantages(algo: str, rewards_PG: Tensor) -> Tensor:
    """Return advantages [P, G] of G one-token answers to each of P prompts, in the first step.

    reinforce: less the mean of all other rewards (https://link.springer.com/article/10.1007/BF00992696).
    rloo: less the mean of the others to the prompt (https://arxiv.org/abs/2402.14740).
    ppo: V is 0, so the reward, brought to mean 0 and deviation 1 over the step (https://arxiv.org/abs/1707.06347).
    others: less the prompt's mean, over its deviation (https://arxiv.org/abs/2402.03300).
    """
    count = rewards_PG.shape[1]
    if algo == "reinforce":
        return (rewards_PG - rewards_PG.mean()) * rewards_PG.numel() / (rewards_PG.numel() - 1)
    if algo == "rloo":
        return (rewards_PG - rewards_PG.mean(1, keepdim=True)) * count / (count - 1)
    if algo == "ppo":
        return (rewards_PG - rewards_PG.mean()) / (rewards_PG.std() + EPS)
    return (rewards_PG - rewards_PG.mean(1, keepdim=True)) / (rewards_PG.std(1, keepdim=True) + EPS)


def token_weights(algo: str, lengths: Sequence[int], budget: int) -> list[float]:
    """Return the weight of a token of each answer, from the lengths of answers and a turn's budget.

    grpo, gspo: 1 / (B |o|), so that each answer counts the same. dr_grpo, reinforce, rloo: 1 / (B budget),
    so that each token counts the same in any step. The others: 1 / Σ |o|.
    """
    if algo in ("grpo", "gspo"):
        return [1 / (len(lengths) * length) for length in lengths]
    if algo in ("dr_grpo", "reinforce", "rloo"):
        return [1 / (len(lengths) * budget)] * len(lengths)
    return [1 / sum(lengths)] * len(lengths)


BOUNDS = {
    **dict.fromkeys(("grpo", "dr_grpo", "bnpo", "ppo"), (0.2, 0.2)),
    "dapo": (0.2, 0.28),
    "gspo": (3e-4, 4e-4),
}
"""Clip below and above 1: DAPO §4.1, GSPO §5.1, and PPO's for papers without one."""


def off_policy_factors(algo: str, log_ratio: Tensor, advantage: Tensor, cap: float) -> Tensor:
    """Return the factor of A for each token [T] of an answer, after the policy has moved.

    Clipped objectives: r, or 0 where A > 0 and r > 1 + high, or A < 0 and r < 1 − low; gspo takes one r for
    the answer, exp of the mean. cispo: min(r, cap). reinforce has no ratio.
    """
    if algo in ("reinforce", "rloo"):
        return torch.ones_like(log_ratio)
    ratio = (log_ratio.mean() if algo == "gspo" else log_ratio).exp().expand_as(log_ratio)
    if algo == "cispo":
        return ratio.clamp(max=cap)
    low, high = BOUNDS[algo]
    stopped = ((advantage > 0) & (ratio > 1 + high)) | ((advantage < 0) & (ratio < 1 - low))
    return ratio.masked_fill(stopped, 0.0)


def logprobs(table: Tensor, sample: Sample) -> Tensor:
    """Return log π of each token after the one before: [T] float64, NaN for the first."""
    logprob = table.detach().double().log_softmax(0)
    ids = sample.token_ids
    return torch.cat([torch.tensor([torch.nan], dtype=torch.float64), logprob[ids[1:], ids[:-1]]])


def table_gradient(table: Tensor, samples: Sequence[Sample], token_gradients: Sequence[Tensor]) -> Tensor:
    """Return ∂ (−Σ g · log π(token | token before)) / ∂ table: Σ g · (π − onehot), column by column.

    Args:
        table: [V, S] logits.
        samples: with their ids.
        token_gradients: for each sample [T], 0 where a token has no gradient.
    """
    policy = table.detach().double().softmax(0)
    gradient = torch.zeros_like(policy)
    for sample, token_gradient_T in zip(samples, token_gradients, strict=True):
        for t in token_gradient_T.nonzero()[:, 0].tolist():
            token, before = int(sample.token_ids[t]), int(sample.token_ids[t - 1])
            gradient[:, before] += token_gradient_T[t] * policy[:, before]
            gradient[token, before] -= token_gradient_T[t]
    return gradient


def policy_tokens(sample: Sample) -> Tensor:
    """Return sampled and demonstrated tokens, [T] bool."""
    return (sample.origin == Origin.SAMPLED) | (sample.origin == Origin.DEMO)


def relative_difference(got: Tensor, expected: Tensor) -> float:
    """Return the largest difference, as a share of the largest expected number."""
    return float((got.double() - expected).abs().max() / expected.abs().max())
