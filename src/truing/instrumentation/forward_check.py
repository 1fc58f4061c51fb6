"""A plain forward of some rows beside what sampler, trainer and reference said of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from truing.doctor.oracle.forward import Logits, plain_logprobs
from truing.learner.learner import Learner
from truing.learner.step import loss_mask
from truing.models.forward.score import causal_model
from truing.models.lora import use_reference
from truing.models.reference import AdapterReference, CopyReference, Reference
from truing.types.sample import Sample


@torch.no_grad()
def plain_facts(
    learner: Learner, rows: Sequence[Sample], batched: Mapping[str, Tensor], alone: Mapping[str, Tensor]
) -> dict[str, Any]:
    """The largest difference of each to a plain forward, nats, at which token it is, and the median."""
    largest: dict[str, float] = {}
    every: dict[str, list[Tensor]] = {}
    where: dict[str, tuple[str, int]] = {}
    tokens = 0
    for row in rows:
        wanted = loss_mask(row).nonzero()[:, 0]
        expected_K = plain_logprobs(model_logits(learner.model), row, wanted.tolist())[0].cpu()
        tokens += len(wanted)
        compared = {"trainer": batched[row.sample_id], "alone": alone[row.sample_id]}
        said = {name: (stream[wanted], expected_K) for name, stream in compared.items()}
        said["sampler"] = row.sampler_logprob[wanted], expected_K
        if row.old_source == "recomputed":
            said["old"] = row.old_logprob[wanted], expected_K
        if learner.reference is not None:
            theirs_K = _plain_reference(learner.reference, row, wanted.tolist())
            said["reference"] = row.ref_logprob[wanted], theirs_K
        for name, (got_K, right_K) in said.items():
            apart_K = (got_K - right_K).abs()
            if apart_K.isnan().all():
                continue  # nobody sampled a demonstration
            every.setdefault(name, []).append(apart_K[~apart_K.isnan()])
            worst = int(apart_K.nan_to_num(-1.0).argmax())
            if name not in largest or float(apart_K[worst]) > largest[name]:
                largest[name] = float(apart_K[worst])
                where[name] = row.sample_id, int(wanted[worst])
    device = causal_model(learner.model).device.type
    median = {name: float(torch.cat(parts).median()) for name, parts in every.items()}
    about = {"tokens": tokens, "rows": len(rows), "device": device}
    return {**about, **largest, "median": median, "where": where}


EXTRA_TOKENS, COMPARED_TOKENS = 32, 32
"""Ids behind a row that give its forward another shape; and tokens of a row at which the two are compared."""


@torch.no_grad()
def rounding_fact(learner: Learner, rows: Sequence[Sample]) -> dict[str, float]:
    """How far a plain forward of rows is from itself in another shape; empty where there is no room for one.

    ``rounding`` is the largest, over tokens, of the root mean square of the difference over the vocabulary,
    nats under the temperature of the row: what a token loses that is certain says nothing of the others.
    """
    causal = causal_model(learner.model)
    if causal.device.type != "cpu":
        return {}  # the trainer computes in bfloat16 there, and a plain forward does not
    most = causal.config.get_text_config().max_position_embeddings
    logits, found = model_logits(learner.model), list[float]()
    for row in rows:
        places, ids = loss_mask(row).nonzero()[:COMPARED_TOKENS, 0] - 1, row.token_ids
        behind = ids.roll(1)[: min(EXTRA_TOKENS, most - len(ids))]
        if len(behind):
            apart_KV = logits(torch.cat([ids, behind]), places).double() - logits(ids, places).double()
            spread_K = apart_KV.std(dim=1, correction=0)  # what all ids have in common is no difference
            found.append(float(spread_K.max()) / (min(row.sampling_params.temperature, 1.0) or 1.0))
    return {"rounding": max(found)} if found else {}


def _plain_reference(reference: Reference, row: Sample, wanted: Sequence[int]) -> Tensor:
    """The same of the reference: [K]."""
    if isinstance(reference, AdapterReference):
        with use_reference(reference.policy):
            return plain_logprobs(model_logits(reference.policy), row, wanted)[0].cpu()
    assert isinstance(reference, CopyReference)
    return plain_logprobs(model_logits(reference.policy), row, wanted)[0].cpu()


def model_logits(model: nn.Module) -> Logits:
    """The model's own forward, of one row."""
    causal = causal_model(model)

    def logits(ids: Tensor, places: Tensor) -> Tensor:
        input_ids, kept = (each.to(causal.device) for each in (ids[None], places))
        return causal(input_ids=input_ids, logits_to_keep=kept, use_cache=False).logits[0]

    return logits
