"""Bets on tokens that were chosen before any reward was known: were they drawn as it is declared?"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from truing.doctor.oracle.draw_e_process import DrawnTokens, log_wealth_increments
from truing.doctor.oracle.draw_replay import TOLERANCE, replay_facts
from truing.learner.learner import Learner
from truing.learner.step import Trace
from truing.models.forward.collate import collate
from truing.models.forward.score import causal_model, distributions
from truing.models.lora import training_mode
from truing.types.sample import Sample
from truing.types.token import Origin
from truing.utils.rng import permutation, uniforms

AUDITED_ATTEMPTS = 8
"""Attempts of a step whose tokens are bet on."""


def draw_audit_facts(learner: Learner, rows: Sequence[Sample], key: tuple[object, ...]) -> dict[str, Any]:
    """Bets on some attempts of a step: which ones is a matter of the key, not of what they earned."""
    sampled = [row for row in rows if _was_drawn(row).any()]
    chosen = [sampled[i] for i in permutation(len(sampled), *key, "audit")[:AUDITED_ATTEMPTS]]
    if not chosen:
        return {"tokens": 0, "gains": {}}
    device = causal_model(learner.model).device.type
    batch = collate(chosen)
    wanted_BT = torch.zeros(batch.token_ids.shape, dtype=torch.bool)
    for b, row in enumerate(chosen):
        wanted_BT[b, : len(row)] = _was_drawn(row)
    gains: dict[str, list[float]] = {}
    stops = chosen[0].sampling_params.stop_ids
    numbers = _uniforms(chosen, turns_before(rows))
    replays: list[dict[str, Any]] = []
    learner.model.eval()
    for places, logprob_KV in distributions(learner.model, batch, wanted_BT):
        bet = drawn_tokens(chosen, places, logprob_KV.cpu(), stops)
        for name, each in log_wealth_increments(bet).items():
            before = gains.get(name, [0.0] * len(each))
            gains[name] = [a + b for a, b in zip(before, each, strict=True)]
        uniform_K = torch.stack([numbers[place] for place in places])
        replay = replay_facts(bet.logprob_KV, bet.token_K, uniform_K, bet.seen_KV)
        b, t = places[replay.pop("worst")]
        replays.append(replay | {"where": (chosen[b].sample_id, t)})
    training_mode(learner.model)
    return {"tokens": int(wanted_BT.sum()), "gains": gains, "replay": _merged(replays) | {"device": device}}


def draw_replay_facts(trace: Trace, rows: Sequence[Sample]) -> dict[str, Any]:
    """How far the random numbers of tokens are from the intervals that the update's own forward gives them.

    Args:
        trace: of the first minibatch.
        drawn: all rows of the step.

    Returns:
        The fact ``draws``; empty where no token was replayed.
    """
    before, tokens, missed = turns_before(rows), 0, 0
    largest, where = 0.0, ("", 0)
    for row in trace.samples:
        if row.sample_id not in trace.probability_below:
            continue
        below_T, size_T = (
            trace.probability_below[row.sample_id].double(),
            trace.logprob[row.sample_id].double().exp(),
        )
        uniform_T = torch.full_like(below_T, torch.nan)
        for k, turn in enumerate(row.turns, before[row.sample_id]):
            key = (*row.rollout_id.split("/"), *([k] if k else []))
            uniform_T[turn.start : turn.end] = uniforms(turn.end - turn.start, *key)
        miss_T = torch.stack([below_T - uniform_T, uniform_T - below_T - size_T]).amax(0).clamp(min=0.0)
        known_T = ~miss_T.isnan() & _was_drawn(row)
        if known_T.any():
            tokens, missed = tokens + int(known_T.sum()), missed + int((miss_T[known_T] > TOLERANCE).sum())
            worst = int(torch.where(known_T, miss_T, -1.0).argmax())
            if float(miss_T[worst]) >= largest:
                largest, where = float(miss_T[worst]), (row.sample_id, worst)
    return (
        {"draws": {"tokens": tokens, "missed": missed, "largest": largest, "where": where}} if tokens else {}
    )


def turns_before(rows: Sequence[Sample]) -> dict[str, int]:
    """How many turns of its rollout came before each row: a rollout of many turns may be many rows."""
    parts: dict[str, list[tuple[int, Sample]]] = {}
    for row in rows:
        number = row.sample_id.rpartition("#")[2] if "#" in row.sample_id else "0"
        parts.setdefault(row.rollout_id, []).append((int(number), row))
    found: dict[str, int] = {}
    for rows_ in parts.values():
        count = 0
        for _, row in sorted(rows_, key=lambda each: each[0]):
            found[row.sample_id], count = count, count + len(row.turns)
    return found


def _uniforms(rows: Sequence[Sample], before: Mapping[str, int]) -> dict[tuple[int, int], Tensor]:
    """The random number that each token of a turn was drawn by, by row and token.

    Its key is the rollout's own, and from the second turn on the turn's (rollouts/attempt.py).
    """
    found: dict[tuple[int, int], Tensor] = {}
    for b, row in enumerate(rows):
        for k, turn in enumerate(row.turns, before[row.sample_id]):
            key = (*row.rollout_id.split("/"), *([k] if k else []))
            for i, number in enumerate(uniforms(turn.end - turn.start, *key)):
                found[b, turn.start + i] = number
    return found


def _merged(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Replays of several blocks of tokens as one."""
    worst = max(parts, key=lambda each: each["largest"])
    return worst | {name: sum(each[name] for each in parts) for name in ("tokens", "missed")}


def _was_drawn(row: Sample) -> Tensor:
    """Tokens that somebody drew, and whose probability is on record: [T] bool."""
    return (row.origin == Origin.SAMPLED) & ~row.sampler_logprob.isnan()


def drawn_tokens(
    rows: Sequence[Sample], places: Sequence[tuple[int, int]], logprob_KV: Tensor, stop_ids: Sequence[int]
) -> DrawnTokens:
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
    return DrawnTokens(logprob_KV, torch.stack(tokens), torch.tensor(indices), said_KV, prompt_KV, stop_ids)
