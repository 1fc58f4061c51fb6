"""Rejection-sampling fine-tuning: the policy's own answers that earned enough become demonstrations."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from truing.algos.sft import SFT
from truing.config import RftConfig
from truing.rollout.flatten import as_demonstration, flatten
from truing.types import Rollout, Sample


def keep_good(rollouts: Sequence[Rollout], cfg: RftConfig) -> list[Sample]:
    """Rollouts with at least ``min_reward`` as demonstrations; the others stay SAMPLED, and untrained."""
    return [as_demonstration(r) if r.reward >= cfg.min_reward else untrained(flatten(r)) for r in rollouts]


def untrained(sample: Sample) -> Sample:
    """A sample that is on record and under no term of the loss."""
    off = torch.zeros_like(sample.policy_mask)
    return replace(sample, policy_mask=off, kl_mask=off, value_mask=off)


RFT = replace(SFT, source="rollouts", to_samples=keep_good)
