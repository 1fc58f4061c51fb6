"""Bets on tokens that were chosen before any reward was known: were they drawn as it is declared?"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from truing.doctor.oracle.audit import Drawn, increments
from truing.doctor.oracle.forward import plain_distributions
from truing.models.lora import training_mode
from truing.rng import permutation
from truing.training.learner import Learner
from truing.training.plain import own_logits
from truing.types import Origin, Sample

AUDITED = 8
"""Attempts of a step whose tokens are bet on."""


@torch.no_grad()
def audit_facts(learner: Learner, drawn: Sequence[Sample], key: tuple[object, ...]) -> dict[str, Any]:
    """Bets on some attempts of a step: which ones is a matter of the key, not of what they earned."""
    sampled = [row for row in drawn if row.kl_mask.any() or _was_drawn(row).any()]
    chosen = [sampled[i] for i in permutation(len(sampled), *key, "audit")[:AUDITED]]
    gains: dict[str, list[float]] = {}
    tokens = 0
    learner.model.eval()
    for row in chosen:
        wanted = _was_drawn(row).nonzero()[:, 0].tolist()
        tokens += len(wanted)
        for name, each in increments(_bets(learner, row, wanted)).items():
            before = gains.get(name, [0.0] * len(each))
            gains[name] = [a + b for a, b in zip(before, each, strict=True)]
    training_mode(learner.model)
    return {"tokens": tokens, "gains": gains}


def _was_drawn(row: Sample) -> Tensor:
    """Tokens that somebody drew, and whose probability is on record: [T] bool."""
    return (row.origin == Origin.SAMPLED) & ~row.sampler_logprob.isnan()


def _bets(learner: Learner, row: Sample, wanted: Sequence[int]) -> Drawn:
    """The tokens of a row with what they were drawn from and what was said before."""
    logprob_KV = torch.stack(plain_distributions(own_logits(learner.model), row, wanted)).double().cpu()
    begun = [next((turn.start for turn in row.turns if turn.start <= t < turn.end), t) for t in wanted]
    said_KV = torch.zeros(logprob_KV.shape, dtype=torch.bool)
    for k, (t, start) in enumerate(zip(wanted, begun, strict=True)):
        said_KV[k, row.token_ids[start:t]] = True
    prompt_KV = torch.zeros_like(said_KV)
    prompt_KV[:, row.token_ids[: row.prompt_length]] = True
    index_K = torch.tensor([t - start for t, start in zip(wanted, begun, strict=True)])
    return Drawn(logprob_KV, row.token_ids[wanted], index_K, said_KV, prompt_KV, row.contract.stop_ids)
