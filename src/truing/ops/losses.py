"""Losses to minimize: ratio, surrogate and aggregation combined.

Objectives of one name differ between libraries. In Truing a denominator spans the whole minibatch, so
bnpo and dapo differ in the clip alone. In TRL bnpo divides by the tokens of each micro-batch and then
averages those means, so its loss depends on how the minibatch is split; dapo's does not.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from truing.errors import InvalidValueError
from truing.ops.aggregate import Aggregation, aggregate
from truing.ops.argument_checks import check_choice, check_tensors
from truing.ops.kl import Estimator, kl
from truing.ops.masks import zero_outside
from truing.ops.ratios import Level, importance_log_ratio, importance_ratio, log_ratio, token_ratio
from truing.ops.stable_exp import excess, scale_gradient_by_exp, times_exp

Surrogate = Literal["clip", "cispo", "reinforce"]


@dataclass(frozen=True)
class Objective:
    """A policy loss: surrogate, ratio, aggregation, and clip range.

    ``clip`` uses the range [1 − clip_low, 1 + clip_high], ``cispo`` uses ``max_ratio``, ``reinforce``
    neither. A limit that the surrogate does not use stays infinite.
    """

    surrogate: Surrogate
    ratio: Level
    aggregation: Aggregation
    clip_low: float = math.inf
    clip_high: float = math.inf
    max_ratio: float = math.inf

    def __post_init__(self) -> None:
        check_choice("surrogate", self.surrogate, Surrogate)
        check_choice("ratio", self.ratio, Level)
        check_choice("aggregation", self.aggregation, Aggregation)
        band, cap = (self.clip_low, self.clip_high), (self.max_ratio,)
        used, unused = {"clip": (band, cap), "cispo": (cap, band), "reinforce": ((), band + cap)}[
            self.surrogate
        ]
        if not all(0 < number < math.inf for number in used) or any(map(math.isfinite, unused)):
            raise InvalidValueError(
                f"surrogate {self.surrogate} has invalid clip limits",
                got=f"clip_low={self.clip_low}, clip_high={self.clip_high}, max_ratio={self.max_ratio}",
                expected="clip: clip_low and clip_high; cispo: max_ratio alone; all > 0; reinforce: none",
            )


OBJECTIVES: dict[str, Objective] = {
    # https://arxiv.org/abs/2402.03300 gives no ε: 0.2 is PPO's and TRL's default
    "grpo": Objective("clip", "token", "sequence_mean", clip_low=0.2, clip_high=0.2),
    # https://arxiv.org/abs/2503.20783, table 6
    "dr_grpo": Objective("clip", "token", "sequence_sum", clip_low=0.2, clip_high=0.2),
    # https://arxiv.org/abs/2503.14476
    "dapo": Objective("clip", "token", "token_mean", clip_low=0.2, clip_high=0.28),
    # TRL's loss_type="bnpo", whose default ε is 0.2
    "bnpo": Objective("clip", "token", "token_mean", clip_low=0.2, clip_high=0.2),
    # https://arxiv.org/abs/2507.18071
    "gspo": Objective("clip", "sequence", "sequence_mean", clip_low=3e-4, clip_high=4e-4),
    # https://arxiv.org/abs/2506.13585 eq. 4, without a number; https://arxiv.org/abs/2510.13786 tried 4, 5
    # and 8, without a difference
    "cispo": Objective("cispo", "token", "token_mean", max_ratio=5.0),
    # https://arxiv.org/abs/1707.06347 table 1
    "ppo": Objective("clip", "token", "token_mean", clip_low=0.2, clip_high=0.2),
    # https://arxiv.org/abs/2402.14740 eq. 2: an answer is one action, so its tokens are summed
    "reinforce": Objective("reinforce", "token", "sequence_sum"),
}


def clipped_surrogate(ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """PPO's pessimistic surrogate, per token.

    ℓ = −min(r A, clip(r, 1 − low, 1 + high) A)  (https://arxiv.org/abs/1707.06347 eq. 7). Its gradient
    is −A ∇r, and 0 where ``clip_mask`` is True.

    Args:
        ratio: float, any one shape ([B, T]).
        advantage: the same shape; no gradient flows into it.
        low: width of the band below 1.
        high: width of the band above 1.

    Returns:
        The same shape; −A on-policy, where r = 1. NaN in, NaN out: ``policy_loss`` masks first.
    """
    check_tensors(ratio=(ratio, "float"), advantage=(advantage, "float"))
    advantage = advantage.detach()
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)


def cispo_surrogate(logprob: Tensor, ratio: Tensor, advantage: Tensor, max_ratio: float) -> Tensor:
    """REINFORCE weighted by a capped ratio, per token: every token keeps its gradient.

    ℓ = −sg[min(r, max_ratio)] A log π  (CISPO, https://arxiv.org/abs/2506.13585 eq. 4)

    Args:
        logprob: float, any one shape ([B, T]), nats, of the current weights.
        ratio: the same shape; no gradient flows into it.
        advantage: the same shape; no gradient flows into it.
        max_ratio: the cap.

    Returns:
        The same shape, nats; only the gradient is meaningful. NaN in, NaN out.
    """
    check_tensors(logprob=(logprob, "float"), ratio=(ratio, "float"), advantage=(advantage, "float"))
    return -ratio.detach().clamp(max=max_ratio) * advantage.detach() * logprob


def reinforce_surrogate(logprob: Tensor, advantage: Tensor) -> Tensor:
    """Return the score function weighted by the advantage, per token: correct on-policy only.

    ℓ = −A log π  (https://doi.org/10.1007/BF00992696)

    Args:
        logprob: float, any one shape ([B, T]), nats, of the current weights.
        advantage: the same shape; no gradient flows into it.

    Returns:
        The same shape, nats; only the gradient is meaningful. NaN in, NaN out.
    """
    check_tensors(logprob=(logprob, "float"), advantage=(advantage, "float"))
    return -advantage.detach() * logprob


def policy_loss(
    logprob_BT: Tensor,
    old_logprob_BT: Tensor,
    advantage_BT: Tensor,
    mask_BT: Tensor,
    *,
    objective: Objective,
    denominator: float,
    weight_BT: Tensor | None = None,
) -> Tensor:
    """Return a micro-batch's share of the policy loss of ``objective``.

    L = aggregate(ℓ(r, A)): see ``clipped_surrogate``, ``cispo_surrogate``, ``importance_ratio`` and
    ``aggregate``; ``OBJECTIVES`` names the paper of each row (https://arxiv.org/abs/1707.06347).

    Args:
        logprob_BT: [B, T] float, nats, of the current weights.
        old_logprob_BT: [B, T] float, nats, the clipping reference.
        advantage_BT: [B, T] float.
        mask_BT: [B, T] bool, tokens under the policy term; the others may be NaN in every argument.
        objective: the policy loss.
        denominator: of the whole minibatch, from ``aggregate.denominator``.
        weight_BT: [B, T] float, factor of each token's loss; a constant.

    Returns:
        [] to minimize; 0 with gradient 0 for an empty mask. A ratio that overflows float32 gives no NaN: a
        token adds 0 if its advantage or weight is 0, the bound if it is clipped, else its true loss.
    """
    logprob_BT, old_logprob_BT, advantage_BT = (
        zero_outside(stream_BT, mask_BT) for stream_BT in (logprob_BT, old_logprob_BT, advantage_BT)
    )
    if weight_BT is not None:
        advantage_BT = advantage_BT.masked_fill(weight_BT == 0, 0.0)
    log_BT = log_ratio(logprob_BT, old_logprob_BT)
    excess_BT = excess(importance_log_ratio(log_BT, mask_BT, objective.ratio))
    ratio_BT = importance_ratio(log_BT - excess_BT, mask_BT, objective.ratio)
    if objective.surrogate == "clip":
        # a negative advantage is never clipped from above, so the excess multiplies it
        scaled_advantage_BT = torch.where(
            advantage_BT < 0, times_exp(advantage_BT.detach(), excess_BT), advantage_BT
        )
        loss_BT = clipped_surrogate(ratio_BT, scaled_advantage_BT, objective.clip_low, objective.clip_high)
    elif objective.surrogate == "cispo":
        loss_BT = cispo_surrogate(logprob_BT, ratio_BT, advantage_BT, objective.max_ratio)
    else:
        loss_BT = reinforce_surrogate(logprob_BT, advantage_BT)
    if weight_BT is not None:
        loss_BT = loss_BT * weight_BT.detach()
    return aggregate(loss_BT, mask_BT, objective.aggregation, denominator)


def kl_loss(
    logprob_BT: Tensor,
    old_logprob_BT: Tensor,
    ref_logprob_BT: Tensor,
    mask_BT: Tensor,
    *,
    estimator: Estimator,
    aggregation: Aggregation,
    denominator: float,
) -> Tensor:
    """Return a micro-batch's share of the KL to the reference.

    L = aggregate(sg[r] k(log π, log π_ref)), r = π / π_old: without the ratio the estimators of ops/kl.py
    are correct on-policy only (https://arxiv.org/abs/2512.21852).

    Args:
        logprob_BT: [B, T] float, nats, of the current weights.
        old_logprob_BT: [B, T] float, nats, as sampled; no gradient flows into the ratio.
        ref_logprob_BT: [B, T] float, nats, of the reference, under the same sampling parameters; likewise.
        mask_BT: [B, T] bool, tokens under the KL term; the others may be NaN in every argument.
        estimator: k2, k3, or k1, whose gradient is 0 on average.
        aggregation: how tokens become one number.
        denominator: of the whole minibatch, from ``aggregate.denominator``.

    Returns:
        [] nats, to minimize; 0 with gradient 0 for an empty mask.
    """
    logprob_BT, old_BT, ref_BT = (
        zero_outside(stream_BT, mask_BT) for stream_BT in (logprob_BT, old_logprob_BT, ref_logprob_BT)
    )
    log_BT = log_ratio(logprob_BT.detach(), old_BT)
    excess_BT = excess(log_BT)
    if estimator == "k3":  # above e^80 it equals e^x to the last bit, so a power of e can be factored out
        ref_excess_BT = excess(ref_BT - logprob_BT)
        log_BT, ref_BT = log_BT + ref_excess_BT, ref_BT - ref_excess_BT
        excess_BT = torch.where(ref_excess_BT > 0, log_BT, excess_BT)
    kl_BT = kl(scale_gradient_by_exp(logprob_BT, excess_BT), ref_BT, estimator)
    total_BT = times_exp(kl_BT.detach(), excess_BT) + (kl_BT - kl_BT.detach())  # with the gradient of kl_BT
    kl_BT = torch.where(excess_BT == 0, kl_BT, total_BT)
    return aggregate(token_ratio(log_BT - excess_BT) * kl_BT, mask_BT, aggregation, denominator)


def entropy_loss(entropy_BT: Tensor, mask_BT: Tensor, aggregation: Aggregation, denominator: float) -> Tensor:
    """Return a micro-batch's share of the entropy bonus: minus the entropy.

    L = −aggregate(H)  (https://arxiv.org/abs/1707.06347 eq. 9)

    Args:
        entropy_BT: [B, T] float, nats, of the distribution at each token.
        mask_BT: [B, T] bool, the tokens that count; the others may be NaN.
        aggregation: how tokens become one number.
        denominator: of the whole minibatch, from ``aggregate.denominator``.

    Returns:
        [] nats, to minimize; 0 with gradient 0 for an empty mask.
    """
    return -aggregate(entropy_BT, mask_BT, aggregation, denominator)


def value_loss(
    value_BT: Tensor,
    returns_BT: Tensor,
    old_value_BT: Tensor,
    mask_BT: Tensor,
    clip_range: float | None,
    denominator: float,
) -> Tensor:
    """Return a micro-batch's share of the critic's squared error, clipped pessimistically.

    L = Σ m ½ max((V − R)², (clip(V, V_old ± ε) − R)²) / D; without a clip, Σ m ½ (V − R)² / D
    (https://arxiv.org/abs/2005.12729: the clip is PPO's code, not its paper).

    Args:
        value_BT: [B, T] float, reward units, of the current critic.
        returns_BT: [B, T] float, reward units, targets; no gradient flows into it.
        old_value_BT: [B, T] float, reward units, of the critic before the optimizer step; likewise.
        mask_BT: [B, T] bool, tokens under the value term; the others may be NaN in every argument.
        clip_range: ε, reward units, or None for no clip.
        denominator: masked tokens of the whole minibatch.

    Returns:
        [] reward units², to minimize; 0 with gradient 0 for an empty mask.
    """
    value_BT, returns_BT, old_BT = (
        zero_outside(stream_BT, mask_BT)
        for stream_BT in (value_BT, returns_BT.detach(), old_value_BT.detach())
    )
    error_BT = (value_BT - returns_BT).square()
    if clip_range is not None:
        clipped_BT = value_BT.clamp(old_BT - clip_range, old_BT + clip_range)
        error_BT = torch.maximum(error_BT, (clipped_BT - returns_BT).square())
    return aggregate(error_BT / 2, mask_BT, "token_mean", denominator)


def cross_entropy_loss(logprob_BT: Tensor, mask_BT: Tensor, denominator: float) -> Tensor:
    """Return a micro-batch's share of the negative log-likelihood of demonstrations.

    L = −Σ m log π / D  (https://arxiv.org/abs/1409.3215)

    Args:
        logprob_BT: [B, T] float, nats, of the current weights.
        mask_BT: [B, T] bool, tokens under the supervised term; the others may be NaN.
        denominator: masked tokens of the whole minibatch.

    Returns:
        [] nats per token, to minimize; 0 with gradient 0 for an empty mask.
    """
    return aggregate(-logprob_BT, mask_BT, "token_mean", denominator)
