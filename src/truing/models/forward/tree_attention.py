"""Attention that knows which tokens begin alike, for any model of transformers' attention interface.

Each run of tokens without a fork is met by its own queries, causally, and by those of all that continue it. A
query so meets its path in pieces; their outputs are weighted by the share of its softmax that fell to each.
Nothing as large as L × L is held on a CPU; on CUDA FlexAttention does the same in blocks.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import flex_attention as flex
from transformers import AttentionInterface, PreTrainedModel

from truing.errors import ModelError
from truing.models.forward.token_tree import Segment, TokenTree

NAME = "truing_tree"
# What SDPA itself calls on a CPU. The forward tells the log of the softmax's sum, too.
FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
FLASH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
UNSUPPORTED = ("softcap", "s_aux", "position_bias", "indices", "block_indices")
"""What some models ask of their attention beside it, and a tree does not know."""


Attention = Callable[[int, Tensor, Tensor, Tensor, float], Tensor]
"""which, query [1, heads, L, D], key and value [1, key heads, L, D], scale → what is found, like query.

``which`` counts the attentions of a forward: mostly one per layer, but some models attend twice.
"""

_CURRENT: ContextVar[Callable[[Tensor, Tensor, Tensor, float], Tensor]] = ContextVar("attention")


@contextmanager
def use_attention(causal: PreTrainedModel, attention: Attention) -> Iterator[None]:
    """One forward of the model within this context attends in that way."""
    which = count()
    token = _CURRENT.set(lambda *given: attention(next(which), *given))
    config = causal.get_decoder().config
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        _CURRENT.reset(token)
        config._attn_implementation = before


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """One layer, as transformers calls it. Values may be narrower than keys, but not for flash attention."""
    asked = [name for name in UNSUPPORTED if kwargs.get(name) is not None]
    if dropout or attention_mask is not None or asked or kwargs.get("is_causal") is False:
        raise ModelError(
            "this model's attention cannot be computed in a tree",
            got=asked or {"dropout": dropout, "mask": attention_mask is not None},
            expected="plain causal attention",
            remedy="use another architecture",
        )
    width, narrow = query.shape[-1], value.shape[-1]
    wide = nn.functional.pad(value, (0, width - narrow)) if narrow < width else value
    scale = width**-0.5 if scaling is None else scaling
    out = _CURRENT.get()(query, key, wide, scale)
    return out[..., :narrow].transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, _attend)  # type: ignore[arg-type]  # its protocol names more than it passes


def tree_attention(tree: TokenTree, device: torch.device) -> Attention:
    """Attention along a tree, with gradients."""
    if device.type == "cpu":
        segments = tree.segments()
        return lambda _, q, k, v, scale: _TreeAttention.apply(q, k, v, segments, scale)
    mask = block_mask(tree, device)
    return lambda _, q, k, v, scale: _compiled_flex()(q, k, v, block_mask=mask, scale=scale, enable_gqa=True)


def block_mask(tree: TokenTree, device: torch.device) -> flex.BlockMask:
    """The tree for FlexAttention."""
    ends, size = tree.ends_L.to(device), len(tree.ends_L)

    def sees(_batch: Tensor, _head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (k <= q) & (q < ends[k])

    return flex.create_block_mask(sees, None, None, size, size, device=device.type)


@cache
def _compiled_flex() -> Any:
    """FlexAttention is fast only where compiled."""
    return torch.compile(flex.flex_attention, dynamic=True)


@dataclass(eq=False)
class PartialAttention:
    """What queries [1, heads, L, D] have found so far: first their own, then what others share with them."""

    query: Tensor
    out: Tensor  # like query
    lse: Tensor  # [1, heads, L], log of the sum of exponentials

    @classmethod
    def empty(cls, query: Tensor) -> "PartialAttention":
        """Nothing yet: the numbers are arbitrary until each query has met its own."""
        return cls(query, torch.empty_like(query), query.new_empty(query.shape[:3]))

    def attend_causal(self, queries: slice, key: Tensor, value: Tensor, scale: float) -> None:
        """Some of the queries meet the keys of the same tokens first, causally."""
        piece, lse = FLASH(self.query[:, :, queries], key, value, 0.0, True, scale=scale)
        self.out[:, :, queries], self.lse[:, :, queries] = piece, lse

    def attend(self, queries: slice, key: Tensor, value: Tensor, scale: float) -> None:
        """Some of the queries meet keys that they have not met before, all of them."""
        piece, lse = FLASH(self.query[:, :, queries], key, value, 0.0, False, scale=scale)
        before = self.lse[:, :, queries]
        after = torch.logaddexp(before, lse)
        self.out[:, :, queries] *= (before - after).exp()[..., None]
        self.out[:, :, queries] += piece * (lse - after).exp()[..., None]
        self.lse[:, :, queries] = after


class _TreeAttention(torch.autograd.Function):
    """Attention segment by segment."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, segments: list[Segment], scale: float
    ) -> Tensor:
        met = PartialAttention.empty(q)
        for keys, queries, causal in _attention_pairs(segments):
            meet = met.attend_causal if causal else met.attend
            meet(queries, k[:, :, keys], v[:, :, keys], scale)
        ctx.save_for_backward(q, k, v, met.out, met.lse)
        ctx.segments, ctx.scale = segments, scale
        return met.out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Flash attention takes its softmax from ``lse``: given that of the whole path, pieces add up."""
        q, k, v, out, lse = ctx.saved_tensors
        grads = [torch.empty_like(each) for each in (q, k, v)]
        for keys, queries, causal in _attention_pairs(ctx.segments):
            given = [grad_out[:, :, queries], q[:, :, queries], k[:, :, keys], v[:, :, keys]]
            whole = [out[:, :, queries], lse[:, :, queries]]
            pieces = FLASH_BACKWARD(*given, *whole, 0.0, causal, scale=ctx.scale)
            for grad, where, piece in zip(grads, (queries, keys, keys), pieces, strict=True):
                if causal:  # the first that these tokens get
                    grad[:, :, where] = piece
                else:
                    grad[:, :, where] += piece
        return (*grads, None, None)


def _attention_pairs(segments: list[Segment]) -> Iterator[tuple[slice, slice, bool]]:
    """Keys and queries that meet, and whether causally: segments with themselves first."""
    for start, end, _ in segments:
        yield slice(start, end), slice(start, end), True
    for start, end, last in segments:
        if last > end:
            yield slice(start, end), slice(end, last), False
