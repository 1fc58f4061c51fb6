"""The rows that the in-process engine is sampling: one step gives each row one more id."""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from truing.engines.base import ActiveRow, Completion, Request, check_prompt_length, draw_ids
from truing.engines.local.padded_rows import PaddedRows
from truing.engines.local.tree_rows import TreeRows
from truing.models.forward.hidden_states import check_positions
from truing.types.sampling_params import SamplingParams
from truing.utils.phase_clock import phase

if TYPE_CHECKING:
    from truing.engines.local.engine import LocalEngine


class LocalBatch:
    """Requests that wait, and rows that are being sampled; a part joins as soon as the batch has space."""

    def __init__(self, engine: "LocalEngine", sampling_params: SamplingParams) -> None:
        self.engine, self.sampling_params = engine, sampling_params
        self._waiting: deque[tuple[TreeRows | PaddedRows, list[Request]]] = deque()
        self._live: list[tuple[Request, ActiveRow]] = []
        self._rows: TreeRows | PaddedRows | None = None  # of the live rows
        self._ids = torch.empty(0, dtype=torch.long)

    @property
    def unfinished(self) -> int:
        """Requests that were added and are not finished."""
        return len(self._live) + sum(len(part) for _, part in self._waiting)

    def add(self, requests: Sequence[Request]) -> None:
        """Add requests, in parts of similar prompts."""
        if not requests:
            return
        for request in requests:
            check_prompt_length(request, self.sampling_params, self.engine.context_length)
        longest = max(len(request.prompt_ids) for request in requests) + self.sampling_params.max_new_tokens
        check_positions(self.engine.model, longest)
        rows = self.engine.rows_for(longest)
        parts = rows.parts(requests, self.engine.limits(self.sampling_params.max_new_tokens))
        self._waiting += [(rows, [requests[i] for i in part]) for part in parts]

    def release(self, episode: tuple[object, ...]) -> None:
        """Free the cached turns of an episode."""
        self.engine.release(episode)

    @torch.inference_mode()
    def step(self) -> list[tuple[Request, Completion]]:
        """Admit what fits, sample one id per row, and return the turns that finished."""
        before = len(self._live)
        parts: list[list[Request]] = []
        while self._waiting and self._fits(*self._waiting[0]):
            self._rows, part = self._waiting.popleft()
            self._live += [(request, ActiveRow.begin(request, self.sampling_params)) for request in part]
            parts.append(part)
        if self._rows is not None and parts:
            with phase("prefill"):
                self._rows.admit(parts)
        if self._rows is None or not self._live:
            return []
        with phase("prefill" if len(self._live) > before else "decode"):
            logits = self._rows.step(self._ids)
            self._ids = draw_ids(logits, [row for _, row in self._live], self.sampling_params)
            return self._remove_finished(self._rows)

    def _fits(self, rows: TreeRows | PaddedRows, part: Sequence[Request]) -> bool:
        """Whether a part may join the rows that are being sampled."""
        if not self._live:
            return True
        return rows is self._rows and rows.admits and len(self._live) + len(part) <= self.engine.max_rows

    def _remove_finished(self, rows: TreeRows | PaddedRows) -> list[tuple[Request, Completion]]:
        """Remove the rows that need no further id, and return their turns."""
        unfinished = [n for n, (_, row) in enumerate(self._live) if row.is_unfinished(self.sampling_params)]
        if len(unfinished) == len(self._live):
            return []
        finished = [pair for pair in self._live if not pair[1].is_unfinished(self.sampling_params)]
        rows.keep(unfinished)
        self._ids, self._live = self._ids[unfinished], [self._live[n] for n in unfinished]
        weights = self.engine.version, self.engine.weight_digest
        return [(request, row.to_completion(self.sampling_params, *weights)) for request, row in finished]
