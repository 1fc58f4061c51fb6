"""A replay of the draws of an engine that inverts a cumulative distribution, as Truing's own does."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from truing.doctor.oracle.draw_e_process import DrawnTokens
from truing.doctor.oracle.draw_replay import TOLERANCE, interval_distance, replay_facts
from truing.measurements.race_replay import turn_key
from truing.types.sample import Sample
from truing.utils.rng import uniforms


class InversionReplay:
    """Replays the draws of some rows at the random numbers of their keys.

    ``tolerance`` is by how much a number may miss the interval of its token by rounding.
    """

    def __init__(
        self, rows: Sequence[Sample], draw_numbers: Mapping[str, Sequence[int]], tolerance: float = TOLERANCE
    ) -> None:
        self._rows, self._tolerance = rows, tolerance
        self._uniforms = _uniforms(rows, draw_numbers)
        self._parts: list[dict[str, Any]] = []
        self._counts: dict[str, list[int]] = {}  # by row: tokens, and those that miss

    def add(self, places: Sequence[tuple[int, int]], drawn: DrawnTokens) -> None:
        """Replay K tokens; each place is a row and a token."""
        uniform_K = torch.stack([self._uniforms[place] for place in places])
        part = replay_facts(drawn.logprob_KV, drawn.token_K, uniform_K, drawn.seen_KV, self._tolerance)
        b, t = places[part.pop("worst")]
        self._parts.append(part | {"where": (self._rows[b].sample_id, t)})
        missed_K = interval_distance(drawn.logprob_KV, drawn.token_K, uniform_K) > self._tolerance
        for (b, _), missed in zip(places, missed_K.tolist(), strict=True):
            count = self._counts.setdefault(self._rows[b].sample_id, [0, 0])
            count[0], count[1] = count[0] + 1, count[1] + missed

    def facts(self, model: nn.Module, group_rows: Sequence[Sample]) -> dict[str, Any]:
        """Return the fact ``replay`` of what was added."""
        worst = max(self._parts, key=lambda each: each["largest"])
        totals = {name: sum(each[name] for each in self._parts) for name in ("tokens", "missed")}
        return worst | totals | {"rows": self._counts}


def _uniforms(rows: Sequence[Sample], numbers: Mapping[str, Sequence[int]]) -> dict[tuple[int, int], Tensor]:
    """Return the random number that each sampled token was drawn with, by row and token.

    Its key is the rollout's; from the second turn on it includes the turn (rollouts/running_rollout.py).
    """
    by_place: dict[tuple[int, int], Tensor] = {}
    for b, row in enumerate(rows):
        for k, turn in zip(numbers[row.sample_id], row.turns, strict=True):
            for i, number in enumerate(uniforms(turn.end - turn.start, *turn_key(row, k))):
                by_place[b, turn.start + i] = number
    return by_place
