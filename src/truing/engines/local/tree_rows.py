"""Rows that share prompt prefixes: the keys and values of a shared prefix are stored and attended to once.

A row is a path of shared prefixes, followed by tokens of its own. When a turn of an episode ends, its row
stays cached; a later request of the same episode continues it if its ids extend the cached ids.
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
from truing.engines.local.padded_rows import Limits
from truing.models.forward.hidden_states import decoder_states
from truing.models.forward.output_head import head_of
from truing.models.forward.token_tree import Segment, build_tree, partition
from truing.models.forward.tree_attention import tree_attention

PREFILL_TOKENS = 16384
"""Prompt tokens per prefill."""

MIN_SHARED = 2048
"""Tokens of a prefix × rows that share it. Below, the extra call per layer costs more than it saves."""


Episode = tuple[object, ...]


@dataclass(frozen=True, eq=False)
class SharedPrefix:
    """Keys and values of tokens that rows share: by layer, [2, 1, key heads, n, D]."""

    layers: dict[int, Tensor]


@dataclass(frozen=True, eq=False)
class CachedRow:
    """The ids of a row whose keys and values are cached: those of its shared prefixes, then its own."""

    episode: Episode | None
    ids: list[int]
    path: tuple[SharedPrefix, ...]


class TreeRows:
    """The rows that are being sampled, and the cached rows of episodes between two turns."""

    admits = True  # rows may join while others are being sampled

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._cached: dict[Episode, tuple[CachedRow, RowCache]] = {}
        self._rows: list[CachedRow] = []
        self._kv_cache = KVCache([])
        self._pending_ids: list[Tensor] = []

    def parts(self, requests: Sequence[Request], limits: Limits) -> list[list[int]]:
        """Return requests to admit together, by index, similar prompts side by side.

        Drops the cached rows of episodes that go on with other ids.
        """
        for request in requests:
            if request.episode in self._cached and not self._continued(request):
                self.release(request.episode)
        cached = [i for i, request in enumerate(requests) if request.episode in self._cached]
        new = [i for i, request in enumerate(requests) if request.episode not in self._cached]
        cached.sort(key=lambda i: requests[i].prompt_ids.tolist())
        prompt_parts = partition([requests[i].prompt_ids for i in new], PREFILL_TOKENS)
        parts = [[new[i] for i in part.members] for part in prompt_parts]
        # while there are more, the other half joins as rows finish
        at_once = limits.rows if len(requests) <= limits.rows else max(1, limits.rows // 2)
        return [part[i : i + at_once] for part in [cached, *parts] for i in range(0, len(part), at_once)]

    def admit(self, parts: Sequence[Sequence[Request]]) -> None:
        """Admit rows, part by part; the next step returns the logits of their first ids."""
        requests = [request for part in parts for request in part]
        rows = [row for part in parts for row in self._rows_of(part)]
        before = [self._kv_cache.row(i) for i in range(len(self._rows))]
        self._kv_cache = KVCache([*before, *(cache for _, cache in rows)])
        self._rows += [row for row, _ in rows]
        self._pending_ids += [
            r.prompt_ids[len(row.ids) :] for r, (row, _) in zip(requests, rows, strict=True)
        ]

    def _rows_of(self, part: Sequence[Request]) -> list[tuple[CachedRow, RowCache]]:
        """Return the rows of a part: cached ones, or new ones after their prompts."""
        cached = [self._claim(request) for request in part]
        new = self._prefill([r for r, row in zip(part, cached, strict=True) if row is None])
        return [next(new) if row is None else row for row in cached]

    def step(self, ids_N: Tensor) -> Tensor:
        """Return the logits [N, V] after ``ids_N``; for newly admitted rows, those after the prompt."""
        new_ids, self._pending_ids = [*ids_N[:, None], *self._pending_ids], []
        return self._forward(new_ids)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows; cache the others if they belong to an episode."""
        for i in set(range(len(self._rows))) - set(rows):
            if (episode := self._rows[i].episode) is not None:
                self._cached[episode] = self._rows[i], self._kv_cache.row(i)
        self._rows = [self._rows[i] for i in rows]
        self._kv_cache.keep(rows)

    def release(self, episode: Episode | None) -> None:
        """Drop the cached row of an episode."""
        if episode in self._cached:
            del self._cached[episode]

    def _continued(self, request: Request) -> bool:
        """Whether the ids of a request extend the cached row of its episode."""
        if request.episode not in self._cached:
            return False
        ids, prompt = self._cached[request.episode][0].ids, request.prompt_ids.tolist()
        return len(ids) < len(prompt) and prompt[: len(ids)] == ids

    def _claim(self, request: Request) -> tuple[CachedRow, RowCache] | None:
        """Remove and return the cached row that a request continues; None if there is none."""
        if request.episode is None or not self._continued(request):
            return None
        return self._cached.pop(request.episode)

    def _prefill(self, requests: Sequence[Request]) -> Iterator[tuple[CachedRow, RowCache]]:
        """Yield rows with all but the last prompt id computed, each distinct prefix once."""
        token_ids = [request.prompt_ids[:-1] for request in requests]
        if not any(map(len, token_ids)):
            yield from ((CachedRow(request.episode, [], ()), RowCache()) for request in requests)
            return
        tree = build_tree(token_ids)
        along_tree = tree_attention(tree, self.model.device)
        keys_values: dict[int, Tensor] = {}

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
            keys_values[layer] = torch.stack([key, value])
            return along_tree(layer, query, key, value, scale)

        decoder_states(self.model, tree.keys_L, tree.position_ids_L, attend)
        paths = tree.paths()
        rows_of = Counter(segment for path in paths for segment in path)
        prefixes = {
            s: SharedPrefix(_part(keys_values, [s]))
            for s, rows in rows_of.items()
            if rows * (s.end - s.start) >= MIN_SHARED
        }
        for request, ids, path in zip(requests, token_ids, paths, strict=True):
            new_segments = [segment for segment in path if segment not in prefixes]
            shared_prefixes = tuple(prefixes[segment] for segment in path if segment in prefixes)
            yield (
                CachedRow(request.episode, ids.tolist(), shared_prefixes),
                _row_cache(keys_values, new_segments),
            )

    def _forward(self, new_ids: Sequence[Tensor]) -> Tensor:
        """Feed each row one or more ids; return the logits [N, V] after the last of each."""
        counts = [len(ids) for ids in new_ids]
        ends = list(accumulate(counts, initial=0))
        starts = [len(row.ids) for row in self._rows]
        positions = [torch.arange(start, start + n) for start, n in zip(starts, counts, strict=True)]
        shared_queries = list(self._shared_queries(ends))

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
            partial = self._kv_cache.attend(layer, query, key, value, scale, counts)
            for prefix, queries in shared_queries:
                keys, values = prefix.layers[layer]
                partial.attend(queries, keys, values, scale)
            return partial.result()

        hidden_LD = decoder_states(self.model, torch.cat(list(new_ids)), torch.cat(positions), attend)
        self._kv_cache.advance(counts)
        for row, ids in zip(self._rows, new_ids, strict=True):
            row.ids.extend(ids.tolist())
        return head_of(self.model)(hidden_LD[torch.tensor(ends[1:]) - 1])

    def _shared_queries(self, ends: Sequence[int]) -> Iterator[tuple[SharedPrefix, slice]]:
        """Yield shared prefixes with slices of the new ids of their rows, which are mostly adjacent."""
        rows_of: dict[SharedPrefix, list[int]] = {}
        for i, row in enumerate(self._rows):
            for prefix in row.path:
                rows_of.setdefault(prefix, []).append(i)
        for prefix, rows in rows_of.items():
            for _, stretch in groupby(enumerate(rows), key=lambda pair: pair[1] - pair[0]):
                adjacent = [row for _, row in stretch]
                yield prefix, slice(ends[adjacent[0]], ends[adjacent[-1] + 1])


def _part(keys_values: Mapping[int, Tensor], segments: Sequence[Segment]) -> dict[int, Tensor]:
    """Return a copy of some segments; it does not keep the whole alive."""
    return {
        layer: torch.cat([tensor[:, :, :, s.start : s.end] for s in segments], dim=3)
        for layer, tensor in keys_values.items()
    }


def _row_cache(keys_values: Mapping[int, Tensor], segments: Sequence[Segment]) -> RowCache:
    """Return the segments as the cache of one row."""
    if not segments:
        return RowCache()
    layers = {layer: tensor[:, 0] for layer, tensor in _part(keys_values, segments).items()}
    return RowCache(sum(s.end - s.start for s in segments), layers)
