"""A plain forward of some rows, compared with the log-probabilities of sampler, trainer and reference."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from truing.distributed.sharding import computing_device
from truing.doctor.oracle.expert_routes import routes_imposed
from truing.doctor.oracle.forward import Logits, plain_logprobs
from truing.learner.learner import Learner
from truing.learner.optimizer_step import loss_mask
from truing.models.forward.autocast import autocast
from truing.models.forward.hidden_states import routes_to_replay
from truing.models.forward.rounding_noise import is_coarse, random_rounding
from truing.models.forward.score import causal_model, computed_precision
from truing.models.lora import use_reference
from truing.models.reference import AdapterReference, CopyReference, Reference
from truing.types.sample import Sample


@torch.no_grad()
def plain_facts(
    learner: Learner, rows: Sequence[Sample], batched: Mapping[str, Tensor], alone: Mapping[str, Tensor]
) -> dict[str, Any]:
    """Return the largest difference to a plain forward by source, nats, its token, and the median."""
    largest: dict[str, float] = {}
    every: dict[str, list[Tensor]] = {}
    where: dict[str, tuple[str, int]] = {}
    tokens, device = 0, computed_precision(learner.model)
    for index, row in enumerate(rows):
        place_K = loss_mask(row).nonzero()[:, 0]
        expected_K = plain_logprobs(row_logits(learner.model, row), row, place_K.tolist())[0].cpu()
        tokens += len(place_K)
        compared = {"trainer": batched[row.sample_id], "alone": alone[row.sample_id]}
        pairs = {name: (stream[place_K], expected_K) for name, stream in compared.items()}
        pairs["sampler"] = row.sampler_logprob[place_K], expected_K
        if row.old_source == "recomputed":
            pairs["old"] = row.old_logprob[place_K], expected_K
        if learner.reference is not None:
            reference_K = _plain_reference(learner.reference, row, place_K.tolist())
            pairs["reference"] = row.ref_logprob[place_K], reference_K
        if is_coarse(device):
            with random_rounding(learner.model, index):
                rounded_K = plain_logprobs(row_logits(learner.model, row), row, place_K.tolist())[0].cpu()
            pairs["rounding"] = rounded_K, expected_K
            if learner.reference is not None:
                with random_rounding(_model_of(learner.reference), index):
                    rounded_K = _plain_reference(learner.reference, row, place_K.tolist())
                pairs["reference_rounding"] = rounded_K, reference_K
        for name, (got_K, right_K) in pairs.items():
            difference_K = (got_K - right_K).abs()
            if difference_K.isnan().all():
                continue  # a demonstration has no sampler log-probabilities
            every.setdefault(name, []).append(difference_K[~difference_K.isnan()])
            worst = int(difference_K.nan_to_num(-1.0).argmax())
            if name not in largest or float(difference_K[worst]) > largest[name]:
                largest[name] = float(difference_K[worst])
                where[name] = row.sample_id, int(place_K[worst])
    mean = {name: float(torch.cat(parts).mean()) for name, parts in every.items()}
    median = {name: float(torch.cat(parts).median()) for name, parts in every.items()}
    about = {"tokens": tokens, "rows": len(rows), "device": device}
    means = {"mean": mean} if is_coarse(device) else {}
    return {**about, **largest, **means, "median": median, "where": where}


COMPARED_TOKENS, ROUNDED_TOKENS = 32, 512
"""Tokens of a row whose rounding is measured; and tokens of rows after which no other row is rounded."""


@torch.no_grad()
def rounding_fact(learner: Learner, rows: Sequence[Sample]) -> dict[str, float]:
    """Return how far random rounding moves a plain forward of the first rows; empty unless on a CPU.

    Another shape of the same forward measures less, and often gives the same bits. ``rounding`` is the
    largest, over tokens, root mean square of the difference over the vocabulary, in nats at the row's
    temperature. One token's own difference would be 0 where that token is certain.
    """
    if computing_device(causal_model(learner.model)).type != "cpu":
        return {}  # there the trainer may compute in bfloat16, a plain forward not
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
    return {"rounding": max(roundings)}


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


def row_logits(model: nn.Module, row: Sample) -> Logits:
    """Return a function that runs the model's own forward on one row, along its expert routes on record."""
    routes = routes_to_replay(causal_model(model), [row])
    return model_logits(model, None if routes is None else routes[0])


def model_logits(model: nn.Module, routes: Tensor | None = None) -> Logits:
    """Return a function that runs the model's own forward on one row; its tokens take ``routes`` if given."""
    causal = causal_model(model)

    def logits(ids: Tensor, positions: Tensor) -> Tensor:
        input_ids, to_keep = (each.to(computing_device(causal)) for each in (ids[None], positions))
        imposed = nullcontext() if routes is None else routes_imposed(causal.get_decoder(), routes)
        with autocast(causal), imposed:
            return causal(input_ids=input_ids, logits_to_keep=to_keep, use_cache=False).logits[0]

    return logits
