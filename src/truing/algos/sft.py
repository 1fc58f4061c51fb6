"""Supervised fine-tuning: the demonstrations of the environment, token by token."""

from collections.abc import Sequence

from torch import Tensor

from truing.algos.base import Algorithm
from truing.config import SftConfig
from truing.ops.losses import cross_entropy_loss
from truing.ops.masks import MaskPolicy
from truing.rollout.flatten import flatten
from truing.types import Batch, Rollout, Sample, Scores


def all_samples(rollouts: Sequence[Rollout], cfg: SftConfig, mask: MaskPolicy) -> list[Sample]:
    """Every demonstration is trained on, whole."""
    return [sample for rollout in rollouts for sample in flatten(rollout)]


def no_credit(samples: Sequence[Sample], cfg: object) -> list[Sample]:
    """Every demonstrated token counts the same."""
    return list(samples)


def supervised_tokens(samples: Sequence[Sample], cfg: object) -> float:
    """The mean is over tokens, so long answers weigh more than short ones."""
    return float(sum(int(sample.supervised_mask.sum()) for sample in samples))


def is_demonstration(sample: Sample, cfg: object) -> bool:
    """Nothing else is read."""
    return bool(sample.supervised_mask.any())


def supervised_loss(batch: Batch, scores: Scores, cfg: object, denominator: float) -> dict[str, Tensor]:
    """Cross-entropy of the demonstrated tokens."""
    return {"supervised": cross_entropy_loss(scores.logprob, batch.supervised_mask, denominator)}


SFT = Algorithm(
    source="demonstrations",
    to_samples=all_samples,
    needs_reference=lambda cfg: False,
    objective=lambda cfg: None,
    credit=no_credit,
    denominator=supervised_tokens,
    pulls=is_demonstration,
    loss=supervised_loss,
)
