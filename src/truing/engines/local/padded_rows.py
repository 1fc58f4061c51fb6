"""Left-padded rows: the prompts of a batch, padded on the left; for any transformers model, on any device.

Each distinct prompt is prefilled once, and its cache is copied to the rows that continue it.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
from torch import LongTensor, Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import DynamicCache, PreTrainedModel

from truing.engines.base import Request
from truing.models.forward.autocast import autocast

PAD_LIMIT = 1.5
"""Longest prompt of a part ÷ its shortest. A lower limit saves pads but decodes fewer rows at once."""


KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Attention without cuDNN's, which plans anew for each length of the cache: on an H200, 100 ms per step."""


class Limits(NamedTuple):
    """What is sampled at once."""

    rows: int  # at most
    tokens: float  # at most, in the cache
    new_tokens: int  # of a row, at most


class PaddedRows:
    """The rows that are being sampled."""

    admits = False  # new rows would need the same padding as the rows before

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model

    def parts(self, requests: Sequence[Request], limits: Limits) -> list[list[int]]:
        """Return requests to sample together, by index: prompts of similar length need few pads."""
        prompts = [tuple(request.prompt_ids.tolist()) for request in requests]
        parts: list[list[int]] = []
        distinct = set[tuple[int, ...]]()
        for i in sorted(range(len(requests)), key=lambda i: (len(prompts[i]), prompts[i])):
            longest, together = len(prompts[i]), distinct | {prompts[i]}
            if (
                parts
                and len(parts[-1]) < limits.rows
                and longest <= PAD_LIMIT * len(prompts[parts[-1][0]])
                and limits.tokens
                >= self.cache_tokens(len(parts[-1]) + 1, len(together), longest, limits.new_tokens)
            ):
                parts[-1].append(i)
                distinct = together
            else:
                parts.append([i])
                distinct = {prompts[i]}
        return parts

    def cache_tokens(self, rows: int, prompts: int, longest: int, new_tokens: int) -> int:
        """Return the tokens to cache for rows of distinct prompts: each row has its own copy."""
        return rows * (longest + new_tokens)

    def admit(self, parts: Sequence[Sequence[Request]]) -> None:
        """Admit one part; there must be no rows. The next step returns the logits of its first ids."""
        (requests,) = parts
        prompts = list({tuple(request.prompt_ids.tolist()): None for request in requests})
        index = {prompt: i for i, prompt in enumerate(prompts)}
        logits = self._prefill(prompts)
        of_row = [index[tuple(request.prompt_ids.tolist())] for request in requests]
        self._first = logits[of_row]
        self._begin(of_row)

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
        self.cache.reorder_cache(cast("LongTensor", row_indices))  # keys and values, and recurrent states
        self.mask = self.mask[row_indices]

    def _begin(self, prompt_of_row: Sequence[int]) -> None:
        """Give each row the cache of its prompt."""
        self.keep(prompt_of_row)

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
        with autocast(self.model), sdpa_kernel(KERNELS):
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
