"""Forwards before the optimizer steps: old and reference log-probabilities, and the critic's values."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from truing.config import PolicyStage
from truing.learner.learner import Learner
from truing.models.critic import state_values
from truing.models.forward.collate import collate
from truing.models.forward.score import score
from truing.types.batch import Batch, Scores
from truing.types.sample import Sample


@torch.no_grad()
def with_old_logprobs(samples: Sequence[Sample], learner: Learner) -> list[Sample]:
    """Return samples with old log-probabilities recomputed by the trainer, if ``correction.method`` is on.

    With ``correction.method = "off"`` the sampler's log-probabilities stay the old policy's.
    """
    if learner.setting.correction.method == "off" or not isinstance(learner.setting.stage, PolicyStage):
        return list(samples)
    logprobs = _scored(samples, learner, partial(score, learner.model))
    return [
        replace(sample, old_logprob=logprobs[sample.sample_id], old_source="recomputed")
        if sample.sample_id in logprobs
        else sample
        for sample in samples
    ]


@torch.no_grad()
def with_reference_logprobs(samples: Sequence[Sample], learner: Learner) -> list[Sample]:
    """Return samples with the reference's log-probabilities; unchanged if the stage has no reference."""
    if learner.reference is None:
        return list(samples)
    logprobs = _scored(samples, learner, learner.reference.score)
    return [
        replace(sample, ref_logprob=logprobs[sample.sample_id]) if sample.sample_id in logprobs else sample
        for sample in samples
    ]


def _scored(
    samples: Sequence[Sample], learner: Learner, score_batch: Callable[[Batch, Tensor], Scores]
) -> dict[str, Tensor]:
    """Return the log-probabilities of sampled tokens by sample: [T], NaN elsewhere."""
    logprobs: dict[str, Tensor] = {}
    for micro in learner.micro_batches([sample for sample in samples if sample.kl_mask.any()]):
        batch = collate(micro.samples)
        logprob_BT = score_batch(batch, batch.kl_mask).logprob.cpu()
        for b, sample in enumerate(micro.samples):
            logprobs[sample.sample_id] = torch.where(sample.kl_mask, logprob_BT[b, : len(sample)], torch.nan)
    return learner.ranks.gather_table("the exchange of log-probabilities", logprobs)


def with_values(samples: Sequence[Sample], learner: Learner) -> list[Sample]:
    """Return samples with the critic's value before each token, and after the end of truncated ones."""
    if learner.critic is None:
        return list(samples)
    values: dict[str, Tensor] = {}
    for micro in learner.micro_batches([row for row in samples if row.value_mask.any() or row.truncated]):
        of_rows = state_values(learner.critic, learner.model, micro.samples)
        values |= {row.sample_id: value for row, value in zip(micro.samples, of_rows, strict=True)}
    values = learner.ranks.gather_table("the exchange of values", values)
    return [
        replace(row, value=values[row.sample_id][:-1], bootstrap_value=float(values[row.sample_id][-1]))
        if row.sample_id in values
        else row
        for row in samples
    ]
