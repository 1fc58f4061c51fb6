"""Rows on CUDA whose step is one replay of a recorded graph: a small model otherwise waits for Python.

What was recorded holds for one shape. So tables of keys and values have room to spare, and rows that have
ended keep their places until half of them have.
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
"""Tokens that tables grow by; each time the step is recorded again."""


class GraphRows(PaddedRows):
    """Padded rows, prefilled as ever; from their second id on a graph draws."""

    def admit(self, requests: Sequence[Request]) -> None:
        """Take in rows, where there are none."""
        self._graph: DecodeGraph | None = None
        super().admit(requests)

    def step(self, ids_N: Tensor) -> Tensor:
        """Logits [N, V] of the next ids, after these; of the first ids, where there are none before."""
        if not len(ids_N):
            return super().step(ids_N)
        if self._graph is None:
            self._graph = DecodeGraph(
                self.model, [_table(layer) for layer in self.cache.layers], self.mask.bool()
            )
            self._places = list(range(len(ids_N)))
            del self.cache, self.mask
        elif self._graph.full:
            self._graph = self._graph.keep(range(self._graph.rows))
        return self._graph.step(self._places, ids_N)

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with these rows only."""
        if self._graph is None:
            super().keep(rows)
            return
        self._places = [self._places[i] for i in rows]
        if not rows:
            self._graph = None
        elif 2 * len(rows) <= self._graph.rows:
            self._graph = self._graph.keep(self._places)
            self._places = list(range(len(rows)))


class DecodeGraph:
    """A step of N rows that stand in one table, all at the same place of it; recorded where there is CUDA."""

    def __init__(self, model: PreTrainedModel, tables: Sequence[Tensor], mask_NS: Tensor) -> None:
        """``tables``: by layer keys and values, [2, N, key heads, S, D]; ``mask_NS``: which are of tokens."""
        self.model, self.rows, self.filled = model, mask_NS.shape[0], mask_NS.shape[1]
        self.tables = [pad(table, (0, 0, 0, GROW_TOKENS)) for table in tables]
        self.mask_NS = pad(mask_NS, (0, GROW_TOKENS))
        self.ids_N = torch.zeros(self.rows, dtype=torch.long, device=model.device)
        self.positions_N = mask_NS.sum(1)
        self.place = torch.tensor([self.filled], device=model.device)
        self._recorded: torch.cuda.CUDAGraph | None = None

    @property
    def full(self) -> bool:
        """Whether there is no room for another token."""
        return self.filled == self.mask_NS.shape[1]

    def step(self, places: Sequence[int], ids: Tensor) -> Tensor:
        """Feed the rows at ``places`` an id each: their next logits [len(places), V]."""
        chosen = torch.tensor(places, device=self.model.device)
        self.ids_N[chosen] = ids
        self.place.fill_(self.filled)
        self.mask_NS[:, self.filled] = True
        if self.model.device.type != "cuda":
            logits_NV = self._compute()
        else:
            if self._recorded is None:
                self._record()
            assert self._recorded is not None
            self._recorded.replay()
            logits_NV = self._logits_NV
        self.filled += 1
        self.positions_N += 1
        return logits_NV[chosen]

    def keep(self, places: Sequence[int]) -> "DecodeGraph":
        """The same for some of the rows, with room again."""
        chosen, filled = torch.tensor(places, device=self.model.device), slice(self.filled)
        return DecodeGraph(
            self.model, [table[:, chosen, :, filled] for table in self.tables], self.mask_NS[chosen, filled]
        )

    def _compute(self) -> Tensor:
        """The step itself; done twice it leaves behind what it leaves once."""
        with autocast(self.model.device):
            hidden_ND = decoder_states(self.model, self.ids_N, self.positions_N, self._attend)
            return head_of(self.model)(hidden_ND)

    def _attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Rows meet their own keys; query [1, heads, N, D], key and value [1, key heads, N, D]."""
        if layer >= len(self.tables):
            raise ModelError(
                "a layer of this model attends more than once, which no graph is made for",
                got=self.model.config.model_type,
                remedy="leave model.cuda_graphs out",
            )
        table = self.tables[layer]
        new = torch.stack([key[0], value[0]]).transpose(1, 2)  # [2, N, key heads, D]
        table.index_copy_(3, self.place, new[:, :, :, None].to(table.dtype))
        keys, values = table.to(query.dtype)
        found = scaled_dot_product_attention(
            query[0].transpose(0, 1)[:, :, None],
            keys,
            values,
            attn_mask=self.mask_NS[:, None, None],
            scale=scale,
            enable_gqa=True,
        )
        return found[:, :, 0].transpose(0, 1)[None]

    def _record(self) -> None:
        """Record the step, after it ran apart from it: https://docs.pytorch.org/docs/stable/notes/cuda.html."""
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            self._compute()
        torch.cuda.current_stream().wait_stream(aside)
        self._recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._recorded):
            self._logits_NV = self._compute()


def _table(layer: Any) -> Tensor:
    """Keys and values that a layer's cache holds, as wide as each other: [2, N, key heads, S, D]."""
    narrower = layer.keys.shape[-1] - layer.values.shape[-1]
    return torch.stack([layer.keys, pad(layer.values, (0, narrower))])
