"""Rows that share what their prompts begin with: its keys and values are held once, and met once a step.

A row is a path of shared runs of tokens, and a tail of its own. When its turn ends it is parked; a request
of the same episode whose ids continue it goes on from there.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

import torch
from torch import Tensor
from transformers import PreTrainedModel

from truing.engines.base import Request
from truing.engines.local.kv_cache import KVCache, RowCache
from truing.models.forward.hidden_states import decoder_states
from truing.models.forward.output_head import head_of
from truing.models.forward.token_tree import Segment, build_tree, partition
from truing.models.forward.tree_attention import tree_attention

PREFILL_TOKENS = 16384
"""Tokens of prompts that are computed at one time."""

MIN_SHARED = 2048
"""Tokens of a run × rows that meet it: below, sharing saves less than one more call per layer costs."""


Episode = tuple[object, ...]


@dataclass(frozen=True, eq=False)
class SharedPrefix:
    """Keys and values of tokens that rows share: by layer [2, 1, key heads, n, D]."""

    layers: dict[int, Tensor]


@dataclass(frozen=True, eq=False)
class CachedRow:
    """A row's ids whose keys and values are there: those of a path of runs, then those of its tail."""

    episode: Episode | None
    ids: list[int]
    path: tuple[SharedPrefix, ...]


class TreeRows:
    """The rows that are being drawn, and those that are parked between two turns."""

    admits = True  # rows while others are on their way

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._parked: dict[Episode, tuple[CachedRow, RowCache]] = {}
        self._rows: list[CachedRow] = []
        self._tails = KVCache([])
        self._pending_ids: list[Tensor] = []

    def parts(self, requests: Sequence[Request], max_rows: int) -> list[list[int]]:
        """Requests to admit together, like prompts side by side; drops parked rows that none continues."""
        going_on = {request.episode for request in requests if self._continued(request)}
        self._parked = {episode: row for episode, row in self._parked.items() if episode in going_on}
        known = [i for i, request in enumerate(requests) if request.episode in self._parked]
        new = [i for i, request in enumerate(requests) if request.episode not in self._parked]
        known.sort(key=lambda i: requests[i].prompt_ids.tolist())
        cut_parts = partition([requests[i].prompt_ids for i in new], PREFILL_TOKENS)
        parts = [[new[i] for i in part.members] for part in cut_parts]
        at_once = max_rows if len(requests) <= max_rows else max(1, max_rows // 2)  # one half waits for room
        return [part[i : i + at_once] for part in [known, *parts] for i in range(0, len(part), at_once)]

    def admit(self, requests: Sequence[Request]) -> None:
        """Take in rows; the next step gives the logits of their first ids."""
        parked = [self._claim(request) for request in requests]
        new = self._prefill([r for r, row in zip(requests, parked, strict=True) if row is None])
        rows = [next(new) if row is None else row for row in parked]
        before = [self._tails.row(i) for i in range(len(self._rows))]
        self._tails = KVCache([*before, *(tail for _, tail in rows)])
        self._rows += [held for held, _ in rows]
        self._pending_ids += [
            r.prompt_ids[len(held.ids) :] for r, (held, _) in zip(requests, rows, strict=True)
        ]

    def step(self, ids_N: Tensor) -> Tensor:
        """Logits [N, V] of the next ids: after these of the rows before, and of the rows just admitted."""
        fed, self._pending_ids = [*ids_N[:, None], *self._pending_ids], []
        return self._forward(fed)

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows only; others are parked where they are turns of an episode."""
        for i in set(range(len(self._rows))) - set(rows):
            if (episode := self._rows[i].episode) is not None:
                self._parked[episode] = self._rows[i], self._tails.row(i)
        self._rows = [self._rows[i] for i in rows]
        self._tails.keep(rows)

    def _continued(self, request: Request) -> bool:
        """Whether a request goes on, by its ids, from where its episode is parked."""
        if request.episode not in self._parked:
            return False
        ids, prompt = self._parked[request.episode][0].ids, request.prompt_ids.tolist()
        return len(ids) < len(prompt) and prompt[: len(ids)] == ids

    def _claim(self, request: Request) -> tuple[CachedRow, RowCache] | None:
        """The parked row that a request continues; it is parked no longer."""
        if request.episode is None or not self._continued(request):
            return None
        return self._parked.pop(request.episode)

    def _prefill(self, requests: Sequence[Request]) -> Iterator[tuple[CachedRow, RowCache]]:
        """Rows of prompts of which all but the last id is computed, each distinct prefix once."""
        computed = [request.prompt_ids[:-1] for request in requests]
        if not any(map(len, computed)):
            yield from ((CachedRow(request.episode, [], ()), RowCache()) for request in requests)
            return
        tree = build_tree(computed)
        along_tree = tree_attention(tree, self.model.device)
        whole: dict[int, Tensor] = {}

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
            whole[layer] = torch.stack([key, value])
            return along_tree(layer, query, key, value, scale)

        decoder_states(self.model, tree.token_ids_L, tree.position_ids_L, attend)
        paths = tree.paths()
        rows_of = Counter(segment for path in paths for segment in path)
        runs = {
            s: SharedPrefix(_part(whole, [s]))
            for s, rows in rows_of.items()
            if rows * (s.end - s.start) >= MIN_SHARED
        }
        for request, ids, path in zip(requests, computed, paths, strict=True):
            own = [segment for segment in path if segment not in runs]
            shared = tuple(runs[segment] for segment in path if segment in runs)
            yield CachedRow(request.episode, ids.tolist(), shared), _row_cache(whole, own)

    def _forward(self, fed: Sequence[Tensor]) -> Tensor:
        """Feed each row some ids, at least one: logits [N, V] after the last of each."""
        counts = [len(ids) for ids in fed]
        ends = list(accumulate(counts, initial=0))
        starts = [len(row.ids) for row in self._rows]
        positions = [torch.arange(start, start + n) for start, n in zip(starts, counts, strict=True)]
        met_by = list(self._shared_queries(ends))

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
            met = self._tails.attend(layer, query, key, value, scale, counts)
            for run, queries in met_by:
                met.attend(queries, *run.layers[layer], scale)
            return met.out

        hidden_LD = decoder_states(self.model, torch.cat(list(fed)), torch.cat(positions), attend)
        self._tails.advance(counts)
        for row, ids in zip(self._rows, fed, strict=True):
            row.ids.extend(ids.tolist())
        return head_of(self.model)(hidden_LD[torch.tensor(ends[1:]) - 1])

    def _shared_queries(self, ends: Sequence[int]) -> Iterator[tuple[SharedPrefix, slice]]:
        """Each run, with the fed ids of rows whose path it is on; such rows mostly stand side by side."""
        rows_of: dict[SharedPrefix, list[int]] = {}
        for i, row in enumerate(self._rows):
            for run in row.path:
                rows_of.setdefault(run, []).append(i)
        for run, rows in rows_of.items():
            for _, stretch in groupby(enumerate(rows), key=lambda pair: pair[1] - pair[0]):
                side_by_side = [row for _, row in stretch]
                yield run, slice(ends[side_by_side[0]], ends[side_by_side[-1] + 1])


def _part(whole: Mapping[int, Tensor], segments: Sequence[Segment]) -> dict[int, Tensor]:
    """Some segments of what was computed; a copy, so that it does not keep the whole."""
    return {
        layer: torch.cat([held[:, :, :, s.start : s.end] for s in segments], dim=3)
        for layer, held in whole.items()
    }


def _row_cache(whole: Mapping[int, Tensor], segments: Sequence[Segment]) -> RowCache:
    """The segments as what one row holds alone."""
    if not segments:
        return RowCache()
    layers = {layer: held[:, 0] for layer, held in _part(whole, segments).items()}
    return RowCache(sum(s.end - s.start for s in segments), layers)
