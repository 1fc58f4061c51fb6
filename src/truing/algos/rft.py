"""Rejection-sampling fine-tuning: the policy's answers with enough reward become demonstrations."""

from collections.abc import Sequence
from dataclasses import replace

from truing.algos.flatten import as_demonstration, flatten, without_loss_terms
from truing.algos.sft import SFT
from truing.config import RftConfig
from truing.ops.masks import MaskPolicy
from truing.types.rollout import Rollout
from truing.types.sample import Sample


def good_as_demonstrations(rollouts: Sequence[Rollout], cfg: RftConfig, mask: MaskPolicy) -> list[Sample]:
    """Return rollouts with at least ``min_reward`` as demonstrations; the others stay SAMPLED, untrained."""
    good = [rollout.reward >= cfg.min_reward for rollout in rollouts]
    demonstrations = [
        s for r, is_good in zip(rollouts, good, strict=True) if is_good for s in flatten(as_demonstration(r))
    ]
    rejected = [s for r, is_good in zip(rollouts, good, strict=True) if not is_good for s in flatten(r, mask)]
    return demonstrations + [without_loss_terms(sample) for sample in rejected]


RFT = replace(SFT, source="rollouts", to_samples=good_as_demonstrations)
