"""Bets on tokens that were chosen before any reward was known: were they drawn as it is declared?"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from truing.doctor.oracle.audit import Drawn, increments
from truing.models.lora import training_mode
from truing.models.score import distributions
from truing.rng import permutation
from truing.training.collate import collate
from truing.training.learner import Learner
from truing.types import Origin, Sample

AUDITED = 8
"""Attempts of a step whose tokens are bet on."""


def audit_facts(learner: Learner, drawn: Sequence[Sample], key: tuple[object, ...]) -> dict[str, Any]:
    """Bets on some attempts of a step: which ones is a matter of the key, not of what they earned."""
    sampled = [row for row in drawn if _was_drawn(row).any()]
    chosen = [sampled[i] for i in permutation(len(sampled), *key, "audit")[:AUDITED]]
    if not chosen:
        return {"tokens": 0, "gains": {}}
    batch = collate(chosen)
    wanted_BT = torch.zeros(batch.token_ids.shape, dtype=torch.bool)
    for b, row in enumerate(chosen):
        wanted_BT[b, : len(row)] = _was_drawn(row)
    gains: dict[str, list[float]] = {}
    stops = chosen[0].contract.stop_ids
    learner.model.eval()
    for places, logprob_KV in distributions(learner.model, batch, wanted_BT):
        for name, each in increments(bets(chosen, places, logprob_KV.cpu(), stops)).items():
            before = gains.get(name, [0.0] * len(each))
            gains[name] = [a + b for a, b in zip(before, each, strict=True)]
    training_mode(learner.model)
    return {"tokens": int(wanted_BT.sum()), "gains": gains}


def _was_drawn(row: Sample) -> Tensor:
    """Tokens that somebody drew, and whose probability is on record: [T] bool."""
    return (row.origin == Origin.SAMPLED) & ~row.sampler_logprob.isnan()


def bets(
    rows: Sequence[Sample], places: Sequence[tuple[int, int]], logprob_KV: Tensor, stops: Sequence[int]
) -> Drawn:
    """K tokens with what they were drawn from and what was said before; each place is a row and a token."""
    said_KV = torch.zeros(logprob_KV.shape, dtype=torch.bool)
    prompt_KV, tokens, indices = torch.zeros_like(said_KV), list[Tensor](), list[int]()
    for k, (b, t) in enumerate(places):
        row = rows[b]
        start = next((turn.start for turn in row.turns if turn.start <= t < turn.end), t)
        said_KV[k, row.token_ids[start:t]] = True
        prompt_KV[k, row.token_ids[: row.prompt_length]] = True
        tokens.append(row.token_ids[t])
        indices.append(t - start)
    return Drawn(logprob_KV, torch.stack(tokens), torch.tensor(indices), said_KV, prompt_KV, stops)
