"""Left-padded rows: the prompts of a batch, padded on the left; for any transformers model, on any device.

Each distinct prompt is prefilled once, and its cache is copied to the rows that continue it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from truing.engines.base import Request
from truing.models.forward.score import autocast

PAD_LIMIT = 1.5
"""Longest prompt of a part ÷ its shortest. A lower limit saves pads but decodes fewer rows at once."""


class PaddedRows:
    """The rows that are being sampled."""

    admits = False  # new rows would need the same padding as the rows before

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model

    def parts(self, requests: Sequence[Request], max_rows: int) -> list[list[int]]:
        """Return requests to sample together, by index: prompts of similar length need few pads."""
        order = sorted(range(len(requests)), key=lambda i: len(requests[i].prompt_ids))
        parts: list[list[int]] = []
        for i in order:
            length = len(requests[i].prompt_ids)
            if (
                parts
                and len(parts[-1]) < max_rows
                and length <= PAD_LIMIT * len(requests[parts[-1][0]].prompt_ids)
            ):
                parts[-1].append(i)
            else:
                parts.append([i])
        return parts

    def admit(self, parts: Sequence[Sequence[Request]]) -> None:
        """Admit one part; there must be no rows. The next step returns the logits of its first ids."""
        (requests,) = parts
        prompts = list({tuple(request.prompt_ids.tolist()): None for request in requests})
        index = {prompt: i for i, prompt in enumerate(prompts)}
        logits = self._prefill(prompts)
        of_row = [index[tuple(request.prompt_ids.tolist())] for request in requests]
        self.keep(of_row)
        self._first = logits[of_row]

    def step(self, ids_N: Tensor) -> Tensor:
        """Return the logits [N, V] after ``ids_N``; without ids, those of the prompts."""
        if not len(ids_N):
            first, self._first = self._first, torch.empty(0)
            return first
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(ids_N), 1)], dim=1)
        return self._forward(ids_N[:, None])

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows only."""
        if not rows:
            del self.cache, self.mask
            return
        row_indices = torch.tensor(rows, device=self.mask.device)
        self.cache.reorder_cache(row_indices)  # keys and values, and recurrent states
        self.mask = self.mask[row_indices]

    def _prefill(self, prompts: Sequence[tuple[int, ...]]) -> Tensor:
        """Return the next-token logits of the distinct prompts."""
        longest = max(map(len, prompts))
        device = self.model.device
        ids = torch.zeros(len(prompts), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for i, prompt in enumerate(prompts):
            ids[i, longest - len(prompt) :] = torch.tensor(prompt)
            mask[i, longest - len(prompt) :] = 1
        self.mask, self.cache = mask.to(device), DynamicCache(config=self.model.config)
        return self._forward(ids.to(device))

    def _forward(self, ids: Tensor) -> Tensor:
        """Return the logits of the last column; position ids count tokens, not pads."""
        positions = (self.mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        with autocast(self.model):
            out = self.model(
                input_ids=ids,
                attention_mask=self.mask,
                position_ids=positions,
                past_key_values=self.cache,
                logits_to_keep=1,
            )
        return out.logits[:, -1]


def cache_bytes_per_token(model: PreTrainedModel) -> int:
    """Return the bytes of a token's keys and values in all layers; a state counts as one head."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_attention_heads", None) or 1
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    return 2 * config.num_hidden_layers * key_heads * width * model.dtype.itemsize
