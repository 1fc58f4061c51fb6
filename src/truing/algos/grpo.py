"""Group-relative policy optimisation and its relatives: one sampled group is its own baseline.

The PPO clip is ``clipped_surrogate`` in ops/losses.py; the table of objectives is ``OBJECTIVES`` there.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from truing.algos.base import Algorithm
from truing.config import GrpoConfig
from truing.ops.advantages import group_advantages
from truing.ops.aggregate import aggregate, denominator
from truing.ops.kl import kl_k2, kl_k3
from truing.ops.losses import OBJECTIVES, Objective, policy_loss
from truing.ops.masks import MaskPolicy
from truing.rollout.flatten import flatten
from truing.types import Batch, Rollout, Sample, Scores

KL_IN_LOSS = {"k2": kl_k2, "k3": kl_k3}
"""k1 is not among them: as a loss its gradient is 0 on average. ops/kl.py says what each one pulls at."""


def objective(cfg: GrpoConfig) -> Objective:
    """The named objective, with the recipe's clip range where it gives one."""
    given = {"clip_low": cfg.clip_low, "clip_high": cfg.clip_high}
    return replace(
        OBJECTIVES[cfg.objective], **{name: value for name, value in given.items() if value is not None}
    )


def all_samples(rollouts: Sequence[Rollout], cfg: GrpoConfig, mask: MaskPolicy) -> list[Sample]:
    """Every rollout is trained on."""
    return [sample for rollout in rollouts for sample in flatten(rollout, mask)]


def credit(samples: Sequence[Sample], cfg: GrpoConfig) -> list[Sample]:
    """One advantage per rollout, written on each of its trained tokens."""
    rollouts = {sample.rollout_id: sample for sample in samples}  # one of many turns may be many samples
    number = {group: i for i, group in enumerate(dict.fromkeys(sample.group_id for sample in samples))}
    rewards_R = torch.tensor([sample.reward for sample in rollouts.values()], dtype=torch.float64)
    group_R = torch.tensor([number[sample.group_id] for sample in rollouts.values()])
    advantage_R = group_advantages(rewards_R, group_R, cfg.advantage_scale).tolist()
    earned = dict(zip(rollouts, advantage_R, strict=True))
    return [
        replace(s, advantage=torch.where(s.policy_mask, earned[s.rollout_id], torch.nan)) for s in samples
    ]


def minibatch_denominator(samples: Sequence[Sample], cfg: GrpoConfig) -> float:
    """Tokens, sequences, or sequences × max_new_tokens, as the objective aggregates."""
    counts = torch.tensor([int(sample.policy_mask.sum()) for sample in samples])
    return denominator(counts, objective(cfg).aggregation, samples[0].contract.max_new_tokens)


def loss(batch: Batch, scores: Scores, cfg: GrpoConfig, denominator: float) -> dict[str, Tensor]:
    """The policy term, and the KL term where the recipe gives it weight."""
    chosen = objective(cfg)
    policy = policy_loss(
        scores.logprob,
        batch.old_logprob,
        batch.advantage,
        batch.policy_mask,
        objective=chosen,
        denominator=denominator,
    )
    if cfg.kl_coef == 0:
        return {"policy": policy}
    kl_BT = KL_IN_LOSS[cfg.kl_estimator](scores.logprob, batch.ref_logprob)
    return {
        "policy": policy,
        "kl": cfg.kl_coef * aggregate(kl_BT, batch.kl_mask, chosen.aggregation, denominator),
    }


GRPO = Algorithm(
    source="rollouts",
    to_samples=all_samples,
    needs_reference=lambda cfg: cfg.kl_coef > 0,
    objective=objective,
    credit=credit,
    denominator=minibatch_denominator,
    loss=loss,
)
