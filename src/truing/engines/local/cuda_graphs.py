"""Rows on CUDA whose decoding step replays a captured graph; a small model otherwise waits for Python.

A graph has fixed shapes. So tables of keys and values have spare room, and finished rows keep their slots
until half of all rows have finished. Rows with the same prompt share its keys and values.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel

from truing.engines.local.padded_rows import PaddedRows
from truing.engines.local.shared_prompts import Blocks, attend, blocks_of
from truing.errors import ModelError
from truing.models.forward.autocast import autocast
from truing.models.forward.hidden_states import decoder_states
from truing.models.forward.output_head import head_of

GROW_TOKENS = 256
"""Tokens by which the tables of the rows grow; each time the graph is captured again."""


class GraphRows(PaddedRows):
    """Padded rows; a graph computes every step after the prefill."""

    def cache_tokens(self, rows: int, prompts: int, longest: int, new_tokens: int) -> int:
        """Return the tokens to cache: at most three blocks per prompt, and twice as many slots as rows."""
        return 3 * prompts * longest + 2 * rows * (new_tokens + GROW_TOKENS)

    def step(self, ids_N: Tensor) -> Tensor:
        """Return the logits [N, V] after ``ids_N``; without ids, those of the prompts."""
        if not len(ids_N):
            return super().step(ids_N)
        if self._graph is None or self._graph.full:
            self._graph = self._packed() if self._graph else self._first_graph()
            self._slots = self._graph.blocks.slots
        return self._graph.step(self._slots, ids_N)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows only."""
        self._prompt_of_row = [self._prompt_of_row[i] for i in rows]
        if self._graph is None:
            if not rows:
                del self.cache, self.mask
            return
        self._slots = [self._slots[i] for i in rows]
        if not rows:
            self._graph = None
        elif 2 * len(rows) <= len(self._graph.blocks.slots):
            self._graph = self._packed()
            self._slots = self._graph.blocks.slots

    def _begin(self, prompt_of_row: Sequence[int]) -> None:
        self._graph: DecodeGraph | None = None
        self._prompt_of_row = list(prompt_of_row)

    def _first_graph(self) -> "DecodeGraph":
        """Return the step after the prefill, whose cache becomes the tables of the prompts."""
        blocks, dtype = blocks_of(self._prompt_of_row), attention_dtype(self.model)
        prompts = [_table(layer, dtype)[:, blocks.prompts] for layer in self.cache.layers]
        own = [each.new_zeros(2, blocks.count, each.shape[2], 0, each.shape[4]) for each in prompts]
        graph = DecodeGraph(self.model, blocks, prompts, self.mask.bool()[blocks.prompts], own)
        del self.cache, self.mask
        return graph

    def _packed(self) -> "DecodeGraph":
        """Return the step with slots for the rows that are left, and with room for new tokens."""
        assert self._graph is not None
        return self._graph.keep(self._slots, self._prompt_of_row)


class DecodeGraph:
    """A decoding step of rows that all have the same number of own tokens; a captured graph on CUDA.

    Shapes as in ``shared_prompts``: prompts [2, B, K, S, D] and own tokens [2, N, K, T, D], by layer.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        blocks: Blocks,
        prompts: Sequence[Tensor],
        seen_BS: Tensor,
        own: Sequence[Tensor],
    ) -> None:
        """``own`` has the tables so far; ``seen_BS`` is True for the tokens of prompts."""
        self.model, self.blocks, self.prompts, self.seen_BS = model, blocks, prompts, seen_BS
        self.filled = own[0].shape[3]
        self.own = [pad(table, (0, 0, 0, GROW_TOKENS)) for table in own]
        self.seen_T = torch.arange(self.filled + GROW_TOKENS, device=model.device) < self.filled
        self.ids_N = torch.zeros(blocks.count, dtype=torch.long, device=model.device)
        self.positions_N = seen_BS.sum(1).repeat_interleave(blocks.size) + self.filled
        self.column = torch.tensor([self.filled], device=model.device)
        self._graph: torch.cuda.CUDAGraph | None = None

    @property
    def full(self) -> bool:
        """Whether the tables have no room for another token."""
        return self.filled == len(self.seen_T)

    def step(self, slots: Sequence[int], ids: Tensor) -> Tensor:
        """Feed one id to each row at ``slots``; return their next logits [len(slots), V]."""
        slot_indices = torch.tensor(slots, device=self.model.device)
        self.ids_N[slot_indices] = ids
        self.column.fill_(self.filled)
        self.seen_T[self.filled] = True
        logits_NV = self._replay() if captures(self.model) else self._compute()
        self.filled += 1
        self.positions_N += 1
        return logits_NV[slot_indices]

    def keep(self, slots: Sequence[int], prompt_of_row: Sequence[int]) -> "DecodeGraph":
        """Return the step for the rows at ``slots``, with room for new tokens."""
        blocks = blocks_of(prompt_of_row)
        from_slot, from_block = [0] * blocks.count, [self.blocks.prompts.index(p) for p in blocks.prompts]
        for new, old in zip(blocks.slots, slots, strict=True):
            from_slot[new] = old
        prompts, seen_BS = self.prompts, self.seen_BS
        if from_block != list(range(len(self.blocks.prompts))):
            prompts, seen_BS = [table[:, from_block] for table in prompts], seen_BS[from_block]
        own = [table[:, from_slot, :, : self.filled] for table in self.own]
        return DecodeGraph(self.model, blocks, prompts, seen_BS, own)

    def _compute(self) -> Tensor:
        """Compute the step; running it twice changes nothing more."""
        with autocast(self.model):
            hidden_ND = decoder_states(self.model, self.ids_N, self.positions_N, self._attend)
            return head_of(self.model)(hidden_ND)

    def _attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Each row attends to its prompt and itself; query [1, H, N, D], key and value [1, K, N, D]."""
        if layer >= len(self.own):
            raise ModelError(
                "a layer of this model attends more than once; a CUDA graph supports one attention per layer",
                got=self.model.config.model_type,
                remedy="set model.cuda_graphs = false",
            )
        own, new = self.own[layer], torch.stack([key[0], value[0]]).transpose(1, 2)  # [2, N, K, D]
        own.index_copy_(3, self.column, new[:, :, :, None].to(own.dtype))
        out_HND = attend(query[0].to(own.dtype), self.prompts[layer], own, self.seen_BS, self.seen_T, scale)
        return out_HND.to(query.dtype)[None]

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


def attention_dtype(model: PreTrainedModel) -> torch.dtype:
    """Return the dtype in which a model attends: autocast's if it is on."""
    kind = model.device.type
    with autocast(model):
        return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else model.dtype


def _table(layer: Any, dtype: torch.dtype) -> Tensor:
    """Return a layer's cached keys and values, padded to one width: [2, P, K, S, D]."""
    narrower = layer.keys.shape[-1] - layer.values.shape[-1]
    return torch.stack([layer.keys.to(dtype), pad(layer.values.to(dtype), (0, narrower))])
