"""Rows on CUDA whose decoding step replays a captured graph; a small model otherwise waits for Python.

A graph has fixed shapes. So tables of keys and values have spare room, and finished rows keep their slots
until half of all rows have finished.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import PreTrainedModel

from truing.engines.base import Request
from truing.engines.local.padded_rows import PaddedRows
from truing.errors import ModelError
from truing.models.forward.hidden_states import decoder_states
from truing.models.forward.output_head import head_of
from truing.models.forward.score import autocast

GROW_TOKENS = 256
"""Tokens by which tables grow; each time the graph is captured again."""


class GraphRows(PaddedRows):
    """Padded rows; a graph computes every step after the prefill."""

    def admit(self, parts: Sequence[Sequence[Request]]) -> None:
        """Admit rows; there must be none."""
        self._graph: DecodeGraph | None = None
        super().admit(parts)

    def step(self, ids_N: Tensor) -> Tensor:
        """Return the logits [N, V] after ``ids_N``; without ids, those of the prompts."""
        if not len(ids_N):
            return super().step(ids_N)
        if self._graph is None:
            self._graph = DecodeGraph(
                self.model, [_table(layer) for layer in self.cache.layers], self.mask.bool()
            )
            self._slots = list(range(len(ids_N)))
            del self.cache, self.mask
        elif self._graph.full:
            self._graph = self._graph.keep(range(self._graph.rows))
        return self._graph.step(self._slots, ids_N)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows only."""
        if self._graph is None:
            super().keep(rows)
            return
        self._slots = [self._slots[i] for i in rows]
        if not rows:
            self._graph = None
        elif 2 * len(rows) <= self._graph.rows:
            self._graph = self._graph.keep(self._slots)
            self._slots = list(range(len(rows)))


class DecodeGraph:
    """A decoding step of N rows in one table, all at the same column; a captured graph on CUDA."""

    def __init__(self, model: PreTrainedModel, tables: Sequence[Tensor], mask_NS: Tensor) -> None:
        """``tables``: keys and values by layer, [2, N, key heads, S, D]; ``mask_NS``: True for tokens."""
        self.model, self.rows, self.filled = model, mask_NS.shape[0], mask_NS.shape[1]
        self.tables = [pad(table, (0, 0, 0, GROW_TOKENS)) for table in tables]
        self.mask_NS = pad(mask_NS, (0, GROW_TOKENS))
        self.ids_N = torch.zeros(self.rows, dtype=torch.long, device=model.device)
        self.positions_N = mask_NS.sum(1)
        self.column = torch.tensor([self.filled], device=model.device)
        self._graph: torch.cuda.CUDAGraph | None = None

    @property
    def full(self) -> bool:
        """Whether the tables have no room for another token."""
        return self.filled == self.mask_NS.shape[1]

    def step(self, slots: Sequence[int], ids: Tensor) -> Tensor:
        """Feed one id to each row at ``slots``; return their next logits [len(slots), V]."""
        slot_indices = torch.tensor(slots, device=self.model.device)
        self.ids_N[slot_indices] = ids
        self.column.fill_(self.filled)
        self.mask_NS[:, self.filled] = True
        logits_NV = self._replay() if captures(self.model) else self._compute()
        self.filled += 1
        self.positions_N += 1
        return logits_NV[slot_indices]

    def keep(self, slots: Sequence[int]) -> "DecodeGraph":
        """Return the step for the rows at ``slots``, with room for new tokens."""
        slot_indices, filled_slice = torch.tensor(slots, device=self.model.device), slice(self.filled)
        return DecodeGraph(
            self.model,
            [table[:, slot_indices, :, filled_slice] for table in self.tables],
            self.mask_NS[slot_indices, filled_slice],
        )

    def _compute(self) -> Tensor:
        """Compute the step; running it twice changes nothing more."""
        with autocast(self.model):
            hidden_ND = decoder_states(self.model, self.ids_N, self.positions_N, self._attend)
            return head_of(self.model)(hidden_ND)

    def _attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Each row attends to its own keys; query [1, heads, N, D], key and value [1, key heads, N, D]."""
        if layer >= len(self.tables):
            raise ModelError(
                "a layer of this model attends more than once; a CUDA graph supports one attention per layer",
                got=self.model.config.model_type,
                remedy="set model.cuda_graphs = false",
            )
        table = self.tables[layer]
        new = torch.stack([key[0], value[0]]).transpose(1, 2)  # [2, N, key heads, D]
        table.index_copy_(3, self.column, new[:, :, :, None].to(table.dtype))
        keys, values = table.to(query.dtype)
        out = scaled_dot_product_attention(
            query[0].transpose(0, 1)[:, :, None],
            keys,
            values,
            attn_mask=self.mask_NS[:, None, None],
            scale=scale,
            enable_gqa=True,
        )
        return out[:, :, 0].transpose(0, 1)[None]

    def _replay(self) -> Tensor:
        """Compute the step by its graph."""
        if self._graph is None:
            self._graph = self._capture()
        self._graph.replay()
        return self._logits_NV

    def _capture(self) -> torch.cuda.CUDAGraph:
        """Capture the step after one warm-up run: https://docs.pytorch.org/docs/stable/notes/cuda.html."""
        warm_up = torch.cuda.Stream()
        warm_up.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm_up):
            self._compute()
        torch.cuda.current_stream().wait_stream(warm_up)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._logits_NV = self._compute()
        return graph


def captures(model: PreTrainedModel) -> bool:
    """Return whether a step of the model is captured as a graph; elsewhere each step is computed anew."""
    return model.device.type == "cuda"


def _table(layer: Any) -> Tensor:
    """Return a layer's cached keys and values, padded to one width: [2, N, key heads, S, D]."""
    narrower = layer.keys.shape[-1] - layer.values.shape[-1]
    return torch.stack([layer.keys, pad(layer.values, (0, narrower))])
