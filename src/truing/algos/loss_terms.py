"""The terms of losses; their formulas are in ops/losses.py."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from truing.algos.base import LossTerm
from truing.config import CorrectionConfig, GatesConfig, KlConfig
from truing.ops.aggregate import Aggregation, denominator
from truing.ops.correction import correction_weights
from truing.ops.losses import Objective, cross_entropy_loss, entropy_loss, kl_loss, policy_loss, value_loss
from truing.ops.ratios import log_ratio, within_bounds
from truing.types.batch import Batch, Scores
from truing.types.sample import Sample


def policy_term(objective: Objective, gates: GatesConfig, correction: CorrectionConfig) -> LossTerm:
    """Return the objective's surrogate over the policy mask, without tokens outside the ratio bounds.

    Such a token adds 0, and still counts in lengths, denominators and its sequence's ratio.
    """

    def loss(batch: Batch, scores: Scores, divisor: float) -> Tensor:
        return policy_loss(
            scores.logprob,
            batch.old_logprob,
            batch.advantage,
            batch.policy_mask,
            objective=objective,
            denominator=divisor,
            weight_BT=_weights(batch, scores, gates, correction),
        )

    return LossTerm("policy", 1.0, has_advantage, _denominator_of("policy_mask", objective.aggregation), loss)


def kl_term(cfg: KlConfig, aggregation: Aggregation) -> LossTerm:
    """Return the KL to the reference over all SAMPLED tokens."""

    def loss(batch: Batch, scores: Scores, divisor: float) -> Tensor:
        return kl_loss(
            scores.logprob,
            batch.old_logprob,
            batch.ref_logprob,
            batch.kl_mask,
            estimator=cfg.estimator,
            aggregation=aggregation,
            denominator=divisor,
        )

    return LossTerm(
        "kl", cfg.coef, lambda row: bool(row.kl_mask.any()), _denominator_of("kl_mask", aggregation), loss
    )


def entropy_term(weight: float, aggregation: Aggregation) -> LossTerm:
    """Return a bonus for the entropy of the sampling distribution."""

    def loss(batch: Batch, scores: Scores, divisor: float) -> Tensor:
        return entropy_loss(scores.entropy, batch.policy_mask, aggregation, divisor)

    denominator_of = _denominator_of("policy_mask", aggregation)
    return LossTerm("entropy", weight, lambda row: bool(row.policy_mask.any()), denominator_of, loss)


def value_term(weight: float, clip_range: float | None) -> LossTerm:
    """Return the critic's squared error over all SAMPLED tokens, also those not under the policy term."""

    def loss(batch: Batch, scores: Scores, divisor: float) -> Tensor:
        assert scores.value is not None  # an algorithm with this term has a critic
        return value_loss(scores.value, batch.returns, batch.value, batch.value_mask, clip_range, divisor)

    denominator_of = _denominator_of("value_mask", "token_mean")
    return LossTerm("value", weight, lambda row: bool(row.value_mask.any()), denominator_of, loss)


def supervised_term(weight: float) -> LossTerm:
    """Return the cross-entropy of demonstrations; the mean is over tokens, so long answers weigh more."""

    def loss(batch: Batch, scores: Scores, divisor: float) -> Tensor:
        return cross_entropy_loss(scores.logprob, batch.supervised_mask, divisor)

    return LossTerm(
        "supervised", weight, is_demonstration, _denominator_of("supervised_mask", "token_mean"), loss
    )


def _weights(batch: Batch, scores: Scores, gates: GatesConfig, correction: CorrectionConfig) -> Tensor | None:
    """Return the factor of each token's policy loss, [B, T]: 0 outside the ratio bounds; None for 1."""
    weight_BT = None
    if gates.min_ratio is not None or gates.max_ratio is not None:
        log_ratio_BT = log_ratio(scores.logprob.detach(), batch.old_logprob)
        weight_BT = within_bounds(log_ratio_BT, gates.min_ratio, gates.max_ratio).to(log_ratio_BT.dtype)
    if correction.method == "off":
        return weight_BT
    streams = (batch.old_logprob, batch.sampler_logprob, batch.policy_mask)
    corrected_BT = correction_weights(*streams, correction.method, correction.low, correction.high)
    return corrected_BT if weight_BT is None else corrected_BT * weight_BT


def has_advantage(sample: Sample) -> bool:
    """Whether a policy term has a gradient: an advantage of 0 has none, under any objective."""
    return bool((sample.advantage[sample.policy_mask] != 0).any())


def is_demonstration(sample: Sample) -> bool:
    """Whether a sample is under supervised terms, and so not under policy terms."""
    return bool(sample.supervised_mask.any())


def _denominator_of(mask: str, aggregation: Aggregation) -> Callable[[Sequence[Sample]], float]:
    """Return a count of masked tokens, sequences, or sequences × max_new_tokens, by aggregation."""
    supervised = mask == "supervised_mask"

    def count(samples: Sequence[Sample]) -> float:
        rows = [sample for sample in samples if is_demonstration(sample) == supervised]
        if not rows:
            return 1.0  # of an empty sum
        tokens = torch.tensor([int(getattr(sample, mask).sum()) for sample in rows])
        return denominator(tokens, aggregation, rows[0].sampling_params.max_new_tokens)

    return count
