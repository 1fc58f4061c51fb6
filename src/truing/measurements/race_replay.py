"""A replay of the draws of an engine that samples by races, as vLLM does with a seed per request."""

import math
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from truing.doctor.oracle.draw_e_process import DrawnTokens
from truing.doctor.oracle.draw_race import KINDS, behind, chances, is_their_noise, race_facts, race_noise
from truing.doctor.oracle.draw_replay import TOLERANCE
from truing.models.forward.collate import collate
from truing.models.forward.score import distributions
from truing.types.sample import Sample
from truing.utils.rng import seed_of

MAX_NUMBERS = 50_000_000
"""Random numbers of a replay; each token takes one per id of the vocabulary."""

EXCHANGE = "an exchange of answers within groups"

GREEDY = "greedy decoding"

CERTAIN = math.log(1e6)
"""Nats by which an exchange must be more likely than other random numbers, and greedy ids than chance."""

TRIED = 64
"""Rollouts of a group whose random numbers may have sampled another one's answer."""


class RaceReplay:
    """Replays the draws of some rows token by token, with the noise of each kind.

    ``tolerance`` is how many nats a sampled id may be behind by rounding.
    """

    def __init__(
        self, rows: Sequence[Sample], draw_numbers: Mapping[str, Sequence[int]], tolerance: float = TOLERANCE
    ) -> None:
        self._rows, self._draw_numbers, self._tolerance = rows, draw_numbers, tolerance
        self._noise: dict[tuple[str, int, int], tuple[int, Iterator[Tensor]]] = {}  # next index of a turn
        self._parts: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
        self._agreed: dict[str, set[int]] = {kind: set() for kind in KINDS}  # rows, in some token
        self._numbers = 0
        self._all_likeliest, self._nats = True, 0.0  # of the tokens, and how unlikely that is

    def add(self, places: Sequence[tuple[int, int]], drawn: DrawnTokens) -> None:
        """Replay K tokens; each place is a row and a token."""
        logprob_KV, token_K = drawn.logprob_KV, drawn.token_K
        self._numbers += logprob_KV.numel()
        if self._numbers > MAX_NUMBERS and any(self._parts.values()):
            return
        own_K = logprob_KV.gather(1, token_K[:, None])[:, 0]
        least_K = logprob_KV.amax(1) - self._tolerance
        self._all_likeliest &= bool((own_K >= least_K).all())
        self._nats -= float(
            logprob_KV.masked_fill(logprob_KV < least_K[:, None], -math.inf).logsumexp(1).sum()
        )
        for kind in KINDS:
            noise_KV = torch.stack([self._noise_at(kind, b, t, logprob_KV.shape[1]) for b, t in places])
            part = race_facts(logprob_KV, token_K, noise_KV, self._tolerance)
            worst: int = part.pop("worst")
            b, t = places[worst]
            self._parts[kind].append(part | {"where": (self._rows[b].sample_id, t)})
            agreed_K = behind(logprob_KV, token_K, noise_KV) <= self._tolerance
            self._agreed[kind] |= {
                b for (b, _), agreed in zip(places, agreed_K.tolist(), strict=True) if agreed
            }

    def _noise_at(self, kind: str, b: int, t: int, vocabulary: int) -> Tensor:
        """Return the noise of a token [V]; the tokens of a turn come in order."""
        row = self._rows[b]
        number, turn = next((k, turn) for k, turn in enumerate(row.turns) if turn.start <= t < turn.end)
        key = turn_key(row, self._draw_numbers[row.sample_id][number])
        index, noise = self._noise.get((kind, b, number), (0, race_noise(kind, seed_of(*key), vocabulary)))
        for _ in range(t - turn.start - index):
            next(noise)
        self._noise[kind, b, number] = t - turn.start + 1, noise
        return next(noise)

    def facts(self, model: nn.Module, group_rows: Sequence[Sample]) -> dict[str, Any]:
        """Return the fact ``replay``; empty if the engine has other noise."""
        tried = {kind: parts for kind, parts in self._parts.items() if parts}
        for kind, parts in tried.items():
            if is_their_noise(parts):
                replay = _merged(parts)
                if (
                    replay["missed"]
                    and not replay["instead"]
                    and self._are_exchanged(kind, model, group_rows)
                ):
                    replay["instead"] = EXCHANGE
                return replay
        for kind, parts in tried.items():
            if self._are_exchanged(kind, model, group_rows):
                return _merged(parts) | {"instead": EXCHANGE}
        if tried and self._all_likeliest and self._nats > CERTAIN:
            return _merged(tried[KINDS[0]]) | {"instead": GREEDY}
        return {}

    def _are_exchanged(self, kind: str, model: nn.Module, group_rows: Sequence[Sample]) -> bool:
        """Return whether other rollouts' random numbers sampled each row without an agreeing draw."""
        nats = 0.0
        for b, row in enumerate(self._rows):
            if b not in self._agreed[kind]:
                others = [each for each in group_rows if each.group_id == row.group_id and each is not row]
                found = [
                    _nats_if_sampled_by(kind, model, row, other, self._tolerance) for other in others[:TRIED]
                ]
                if not any(found):
                    return False
                nats += max(found) - math.log(len(found))
        return nats > CERTAIN


def turn_key(row: Sample, number: int) -> tuple[object, ...]:
    """Return the key of a turn's random numbers: the rollout's, and from the second turn on its number."""
    return (*row.rollout_id.split("/"), *([number] if number else []))


def _nats_if_sampled_by(kind: str, model: nn.Module, row: Sample, other: Sample, tolerance: float) -> float:
    """Return how unlikely a first turn is, nats, if another rollout's random numbers give it; else 0."""
    mask_BT = torch.zeros(1, len(row), dtype=torch.bool)
    first = row.turns[0]
    mask_BT[0, first.start : first.end] = True
    places, logprob_KV = next(
        iter(distributions(model, collate([row]), mask_BT))
    )  # the first of them suffice
    noise = race_noise(kind, seed_of(*turn_key(other, 0)), logprob_KV.shape[1])
    noise_KV = torch.stack([next(noise) for _ in places])
    token_K = torch.stack([row.token_ids[t] for _, t in places])
    if not bool((behind(logprob_KV.cpu(), token_K, noise_KV) <= tolerance).all()):
        return 0.0
    return -float(chances(logprob_KV.cpu(), token_K, tolerance).log().sum())


def _merged(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the replays of several blocks of tokens."""
    worst = max(parts, key=itemgetter("largest"))
    totals = {name: sum(part[name] for part in parts) for name in ("tokens", "missed")}
    return {name: worst[name] for name in ("largest", "instead", "where")} | totals
