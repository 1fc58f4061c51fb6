"""Rows that share what their prompts begin with: its keys and values are held once, and met once a step.

A row is a path of shared runs of tokens, and a tail of its own. When its turn ends it is parked; a request
of the same episode whose ids continue it goes on from there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import torch
from torch import Tensor
from transformers import PreTrainedModel

from truing.models.forward import decode
from truing.models.tree import cut, grow
from truing.models.tree_attention import Pieces, along
from truing.sample.drawing import Request
from truing.sample.tails import Tails

PREFILL_TOKENS = 16384
"""Tokens of prompts that are computed at one time."""


@dataclass(frozen=True, eq=False)
class Run:
    """Keys and values of tokens that rows share, by layer: each [1, key heads, n, D]."""

    keys: dict[int, Tensor]
    values: dict[int, Tensor]


@dataclass(frozen=True, eq=False)
class Held:
    """The ids whose keys and values are there: those of a path of runs, then its own."""

    ids: list[int]
    path: tuple[Run, ...]
    tail: Tails  # of one row


class TreeRows:
    """The rows that are being drawn, and those that are parked between two turns."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._parked: dict[tuple[object, ...], Held] = {}
        self._episodes: list[tuple[object, ...] | None] = []
        self._ids: list[list[int]] = []
        self._paths: list[tuple[Run, ...]] = []
        self._tails = Tails([])

    def parts(self, requests: Sequence[Request], max_rows: int) -> list[list[int]]:
        """Requests to draw together, like prompts side by side; drops parked rows that none continues."""
        held = {r.episode: row for r in requests if (row := self._continued(r))}
        self._parked = {episode: row for episode, row in held.items() if episode is not None}
        known = [i for i, request in enumerate(requests) if request.episode in self._parked]
        new = [i for i, request in enumerate(requests) if request.episode not in self._parked]
        known.sort(key=lambda i: requests[i].prompt_ids.tolist())
        parts = [
            [new[i] for i in part] for part in cut([requests[i].prompt_ids for i in new], PREFILL_TOKENS)
        ]
        return [part[i : i + max_rows] for part in [known, *parts] for i in range(0, len(part), max_rows)]

    def begin(self, requests: Sequence[Request]) -> Tensor:
        """Logits [N, V] of the first ids of these rows."""
        claimed = [self._claim(request) for request in requests]
        unknown = [r.prompt_ids for r, row in zip(requests, claimed, strict=True) if row is None]
        fresh = self._prefill(unknown)
        rows = [next(fresh) if row is None else row for row in claimed]
        self._episodes = [request.episode for request in requests]
        self._ids = [row.ids for row in rows]
        self._paths = [row.path for row in rows]
        self._tails = Tails.of([row.tail for row in rows])
        return self._go_on([r.prompt_ids[len(ids) :] for r, ids in zip(requests, self._ids, strict=True)])

    def step(self, ids_N: Tensor) -> Tensor:
        """Logits [N, V] of the next ids, after these."""
        return self._go_on(list(ids_N[:, None]))

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows only; others are parked where they are turns of an episode."""
        for i in set(range(len(self._ids))) - set(rows):
            if (episode := self._episodes[i]) is not None:
                self._parked[episode] = Held(self._ids[i], self._paths[i], self._tails.chosen([i]))
        self._episodes = [self._episodes[i] for i in rows]
        self._ids = [self._ids[i] for i in rows]
        self._paths = [self._paths[i] for i in rows]
        self._tails = self._tails.chosen(rows)

    def end(self) -> None:
        """No row goes on."""
        self.keep([])

    def _continued(self, request: Request) -> Held | None:
        """The parked row that a request continues, by its ids."""
        row = None if request.episode is None else self._parked.get(request.episode)
        prompt = request.prompt_ids.tolist()
        return row if row and len(row.ids) < len(prompt) and prompt[: len(row.ids)] == row.ids else None

    def _claim(self, request: Request) -> Held | None:
        """The same, which is no longer parked."""
        row = self._continued(request)
        if row and request.episode is not None:
            del self._parked[request.episode]
        return row

    def _prefill(self, prompts: Sequence[Tensor]) -> Iterator[Held]:
        """Rows of prompts of which all but the last id is computed, each distinct prefix once."""
        if not any(len(ids) > 1 for ids in prompts):
            yield from (Held([], (), Tails([0])) for _ in prompts)
            return
        tree = grow([ids[:-1] for ids in prompts])
        along_tree = along(tree, self.model.device)
        whole = Run({}, {})

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
            whole.keys[layer], whole.values[layer] = key, value
            return along_tree(layer, query, key, value, scale)

        decode(self.model, tree.token_ids_L, tree.position_ids_L, attend)
        runs = [(segment, _part(whole, segment.start, segment.end)) for segment in tree.segments()]
        for ids, place in zip(prompts, tree.places, strict=True):
            last = int(place[-1]) if len(place) else -1
            path = tuple(run for segment, run in runs if segment.start <= last < segment.last)
            yield Held(ids[:-1].tolist(), path, Tails([0]))

    def _go_on(self, fed: Sequence[Tensor]) -> Tensor:
        """Feed each row some ids, at least one: logits [N, V] after the last of each."""
        counts = [len(ids) for ids in fed]
        ends = list(accumulate(counts, initial=0))
        positions = [torch.arange(len(ids), len(ids) + n) for ids, n in zip(self._ids, counts, strict=True)]
        shared = list(self._shared(ends))

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
            met = Pieces(query)
            for run, queries in shared:
                met.meet(queries, run.keys[layer], run.values[layer], scale, causal=False)
            self._tails.meet(layer, met, key, value, scale, counts)
            return met.out

        hidden_LD = decode(self.model, torch.cat(list(fed)), torch.cat(positions), attend)
        self._tails.advance(counts)
        for row, ids in zip(self._ids, fed, strict=True):
            row.extend(ids.tolist())
        return self.model.get_output_embeddings()(hidden_LD[torch.tensor(ends[1:]) - 1])

    def _shared(self, ends: Sequence[int]) -> Iterator[tuple[Run, slice]]:
        """Each run, with the ids that are fed to rows of its path; such rows mostly stand side by side."""
        rows_of: dict[Run, list[int]] = {}
        for i, path in enumerate(self._paths):
            for run in path:
                rows_of.setdefault(run, []).append(i)
        for run, rows in rows_of.items():
            for _, stretch in groupby(enumerate(rows), key=lambda pair: pair[1] - pair[0]):
                side_by_side = [row for _, row in stretch]
                yield run, slice(ends[side_by_side[0]], ends[side_by_side[-1] + 1])


def _part(run: Run, start: int, end: int) -> Run:
    """A run within a run; a copy, so that it does not keep the whole."""
    keys, values = (
        {layer: each[:, :, start:end].clone() for layer, each in held.items()}
        for held in (run.keys, run.values)
    )
    return Run(keys, values)
