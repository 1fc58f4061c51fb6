"""A plain forward of some rows, compared with the log-probabilities of sampler, trainer and reference."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from truing.doctor.oracle.forward import plain_logprobs, support_distances
from truing.learner.learner import Learner
from truing.learner.optimizer_step import loss_mask
from truing.measurements.allowed_ids import AllowedIds, allowed_ids
from truing.measurements.checked_rows import checked_rows, computed_beside, without_dropout
from truing.measurements.measurement import Measurement
from truing.measurements.row_logits import model_logits, row_logits
from truing.models.forward.collate import collate
from truing.models.forward.rounding_noise import is_coarse, random_rounding
from truing.models.forward.score import computed_precision, score
from truing.models.lora import use_reference
from truing.models.reference import AdapterReference, CopyReference, Reference
from truing.ops.kl import kl_k3
from truing.types.sample import Sample
from truing.types.token_facts import Null, Plain

COMPARED_TOKENS, ROUNDED_TOKENS = 32, 512
"""Tokens of a row whose rounding, or possible ids, are measured; and tokens of rows after which no further
row is rounded."""

ROUNDINGS = 8
"""In another precision than float32, the most roundings of a row of few tokens: its logits have few digits,
so that one rounding may by chance move none of them."""


class PlainForward(Measurement):
    """Log-probabilities of some rows by a plain forward, beside those of sampler, trainer and reference.

    And how far the trainer is from itself, in a batch and row by row, and under random rounding.
    """

    facts = ("null", "plain")
    cost = "some five forwards of 1 to 4 rows, up to 512 tokens or one row"
    audit = "rows"

    def before_optimizer_steps(self, minibatch: Sequence[Sample]) -> None:
        """Compute the rows."""
        learner = self.step.learner
        if not (rows := checked_rows(self.step, minibatch)):
            return
        with without_dropout(learner):
            together = _scores(learner, [computed_beside(rows, minibatch)])
            alone = _scores(learner, [[row] for row in rows])
            null = null_facts(rows, together, alone)
            null["rounding"] = plain_rounding(learner, rows)
            allowed = allowed_ids(self.step.sampler, self.step.samples.tasks)
            self.found = {"null": null, "plain": plain_facts(learner, rows, together, alone, allowed)}


def null_facts(rows: Sequence[Sample], together: Mapping[str, Tensor], alone: Mapping[str, Tensor]) -> Null:
    """Return how far the trainer is from itself: largest difference, nats, and mean k3, over trained tokens.

    ``together`` and ``alone`` are its log-probabilities by sample, [T], in one batch and row by row.
    """
    together_K, alone_K = (
        torch.cat([logprobs[row.sample_id][loss_mask(row)] for row in rows]).double()
        for logprobs in (together, alone)
    )
    possible_K = torch.isfinite(together_K) & torch.isfinite(alone_K)  # a banned stop id has −∞ in both
    together_k, alone_k = together_K[possible_K], alone_K[possible_K]
    if not len(together_k):
        return {"logprob": 0.0, "k3": 0.0}
    return {
        "logprob": float((together_k - alone_k).abs().max()),
        "k3": float(kl_k3(alone_k, together_k).mean()),
    }


@torch.no_grad()
def _scores(learner: Learner, parts: Iterable[Sequence[Sample]]) -> dict[str, Tensor]:
    """Return the trainer's own log-probabilities, part by part: [T] by sample."""
    logprobs = {}
    for part in parts:
        batch = collate(part)
        logprob_BT = score(learner.model, batch, loss_mask(batch)).logprob.cpu()
        logprobs |= {row.sample_id: logprob_BT[b, : len(row)] for b, row in enumerate(part)}
    return logprobs


@torch.no_grad()
def plain_facts(
    learner: Learner,
    rows: Sequence[Sample],
    batched: Mapping[str, Tensor],
    alone: Mapping[str, Tensor],
    allowed: AllowedIds | None = None,
) -> Plain:
    """Return the largest difference to a plain forward by source, nats, its token, and the median.

    ``allowed`` gives the ids that a grammar allows: with it recorded supports are compared too.
    """
    largest: dict[str, float] = {}
    every: dict[str, list[Tensor]] = {}
    where: dict[str, tuple[str, int]] = {}
    tokens, device = 0, computed_precision(learner.model)
    for index, row in enumerate(rows):
        place_K = loss_mask(row).nonzero()[:, 0]
        expected_K = _plain(learner.model, row, place_K.tolist())
        tokens += len(place_K)
        compared = {"trainer": batched[row.sample_id], "alone": alone[row.sample_id]}
        pairs = {name: (stream[place_K], expected_K) for name, stream in compared.items()}
        pairs["sampler"] = row.sampler_logprob[place_K], expected_K
        if allowed is not None and row.support is not None and row.sampling_params.temperature > 0:
            pairs["support"] = _support_distances(learner, row, place_K, allowed), torch.zeros(len(place_K))
        if row.old_source == "recomputed":
            pairs["old"] = row.old_logprob[place_K], expected_K
        if learner.reference is not None:
            reference_K = _plain_reference(learner.reference, row, place_K.tolist())
            pairs["reference"] = row.ref_logprob[place_K], reference_K
        if is_coarse(device):
            seeds = range(index * ROUNDINGS, index * ROUNDINGS + _roundings(len(place_K)))
            plain = partial(_plain, learner.model, row, place_K.tolist())
            rounded = [_rounded(learner.model, seed, plain) for seed in seeds]
            pairs["rounding"] = torch.cat(rounded), expected_K.repeat(len(rounded))
            if learner.reference is not None:
                plain = partial(_plain_reference, learner.reference, row, place_K.tolist())
                rounded = [_rounded(_model_of(learner.reference), seed, plain) for seed in seeds]
                pairs["reference_rounding"] = torch.cat(rounded), reference_K.repeat(len(rounded))
        for name, (got_K, right_K) in pairs.items():
            difference_K = (got_K - right_K).abs()
            if difference_K.isnan().all():
                continue  # a demonstration has no sampler log-probabilities
            every.setdefault(name, []).append(difference_K[~difference_K.isnan()])
            worst = int(difference_K.nan_to_num(-1.0).argmax())
            if name not in largest or float(difference_K[worst]) > largest[name]:
                largest[name] = float(difference_K[worst])
                where[name] = row.sample_id, int(place_K[worst % len(place_K)])
    mean = {name: float(torch.cat(parts).mean()) for name, parts in every.items()}
    median = {name: float(torch.cat(parts).median()) for name, parts in every.items()}
    about = {"tokens": tokens, "rows": len(rows), "device": device}
    means = {"mean": mean} if is_coarse(device) else {}
    return cast("Plain", {**about, **largest, **means, "median": median, "where": where})


def _roundings(tokens: int) -> int:
    """Return how often to round a row of this many tokens at random."""
    return min(ROUNDINGS, -(-COMPARED_TOKENS // max(tokens, 1)))


def _rounded(model: nn.Module, seed: int, plain: Callable[[], Tensor]) -> Tensor:
    """Return what a plain forward computes under random rounding of a model."""
    with random_rounding(model, seed):
        return plain()


def _support_distances(learner: Learner, row: Sample, place_K: Tensor, allowed: AllowedIds) -> Tensor:
    """Return how far the possible ids on record are from the declared ones, nats: [K], NaN at most places."""
    distance_K = torch.full((len(place_K),), torch.nan, dtype=torch.float64)
    stride = -(-len(place_K) // COMPARED_TOKENS) or 1
    places = place_K[::stride].tolist()
    logits = row_logits(learner.model, row)
    distance_K[::stride] = support_distances(logits, row, places, allowed(row, places))
    return distance_K


@torch.no_grad()
def plain_rounding(learner: Learner, rows: Sequence[Sample]) -> float:
    """Return how far random rounding moves a plain forward of the first rows.

    Another shape of the same forward measures less, and often gives the same bits. It is the largest, over
    tokens, root mean square of the difference over the vocabulary, in nats at the row's temperature. One
    token's own difference would be 0 where that token is certain.
    """
    roundings, computed = list[float](), 0
    for index, row in enumerate(rows):
        if computed >= ROUNDED_TOKENS:
            break
        computed += len(row)
        logits, positions = row_logits(learner.model, row), loss_mask(row).nonzero()[:COMPARED_TOKENS, 0] - 1
        with random_rounding(learner.model, index):
            rounded_KV = logits(row.token_ids, positions).double()
        difference_KV = rounded_KV - logits(row.token_ids, positions).double()
        rms_K = difference_KV.std(dim=1, correction=0)  # a shift of all ids alike changes no probability
        roundings.append(float(rms_K.max()) / (min(row.sampling_params.temperature, 1.0) or 1.0))
    return max(roundings)


def _plain(model: nn.Module, row: Sample, places: Sequence[int]) -> Tensor:
    """Return the policy's log-probabilities by a plain forward: [K]."""
    return plain_logprobs(row_logits(model, row), row, places)[0].cpu()


def _plain_reference(reference: Reference, row: Sample, places: Sequence[int]) -> Tensor:
    """Return the reference's log-probabilities by a plain forward: [K]."""
    if isinstance(reference, AdapterReference):
        with use_reference(reference.policy):
            return plain_logprobs(model_logits(reference.policy), row, places)[0].cpu()
    assert isinstance(reference, CopyReference)
    return plain_logprobs(model_logits(reference.policy), row, places)[0].cpu()


def _model_of(reference: Reference) -> nn.Module:
    """Return the model that computes as the reference."""
    assert isinstance(reference, AdapterReference | CopyReference)
    return reference.policy
