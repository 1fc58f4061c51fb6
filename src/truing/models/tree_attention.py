"""Attention within a tree of tokens, for any model of transformers' attention interface.

Each segment's keys are met by its own queries, causally, and by those of all that continue it. A query so
meets its path in pieces; their outputs are weighted by the share of its softmax that fell to each.
Nothing as large as L × L is ever held.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import flex_attention as flex
from transformers import AttentionInterface, PreTrainedModel

from truing.errors import ModelError
from truing.models.tree import Segment, Tree

NAME = "truing_tree"
FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # what SDPA itself calls on a CPU;
FLASH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward  # this one tells the LSE


@contextmanager
def tree_attention(causal: PreTrainedModel, tree: Tree) -> Iterator[dict[str, Any]]:
    """Within this context the model attends along a tree; its forward takes the keywords."""
    config = causal.get_decoder().config
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield {"tree": _plan(tree, causal.device)}
    finally:
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
    """One layer: query [1, heads, L, D], key and value [1, key heads, L, D] → [1, L, heads, D]."""
    if dropout:
        raise ModelError("attention in a tree has no dropout", got=dropout, expected=0)
    plan = kwargs["tree"]
    if isinstance(plan, flex.BlockMask):
        out = _compiled_flex()(query, key, value, block_mask=plan, scale=scaling, enable_gqa=True)
    else:
        width = query.shape[-1]
        padded = nn.functional.pad(value, (0, width - value.shape[-1]))  # flash knows one width only
        scale = width**-0.5 if scaling is None else scaling
        out = _Branches.apply(query, key, padded, plan, scale)[..., : value.shape[-1]]
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, _attend)  # type: ignore[arg-type]  # its protocol names more than it passes


def _plan(tree: Tree, device: torch.device) -> Sequence[Segment] | flex.BlockMask:
    """What the layers need to know of a tree: its segments on a CPU, a mask of blocks on CUDA."""
    return tree.segments() if device.type == "cpu" else block_mask(tree, device)


def block_mask(tree: Tree, device: torch.device) -> flex.BlockMask:
    """The tree for FlexAttention."""
    ends, size = tree.ends_L.to(device), len(tree.ends_L)

    def sees(_batch: Tensor, _head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (k <= q) & (q < ends[k])

    return flex.create_block_mask(sees, None, None, size, size, device=device.type)


@cache
def _compiled_flex() -> Any:
    """FlexAttention is fast only where compiled."""
    return torch.compile(flex.flex_attention, dynamic=True)


class _Branches(torch.autograd.Function):
    """Attention segment by segment."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, segments: Sequence[Segment], scale: float
    ) -> Tensor:
        out = torch.zeros_like(q)
        lse = q.new_full(q.shape[:3], -torch.inf)  # log of the sum of exponentials, so far
        for keys, queries, causal in _meetings(segments):
            piece, piece_lse = FLASH(q[:, :, queries], k[:, :, keys], v[:, :, keys], 0.0, causal, scale=scale)
            before = lse[:, :, queries]
            after = torch.logaddexp(before, piece_lse)
            out[:, :, queries] *= (before - after).exp()[..., None]
            out[:, :, queries] += piece * (piece_lse - after).exp()[..., None]
            lse[:, :, queries] = after
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.segments, ctx.scale = segments, scale
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Flash attention takes its softmax from ``lse``: given that of the whole path, pieces add up."""
        q, k, v, out, lse = ctx.saved_tensors
        grads = [torch.zeros_like(each) for each in (q, k, v)]
        for keys, queries, causal in _meetings(ctx.segments):
            given = [grad_out[:, :, queries], q[:, :, queries], k[:, :, keys], v[:, :, keys]]
            whole = [out[:, :, queries], lse[:, :, queries]]
            pieces = FLASH_BACKWARD(*given, *whole, 0.0, causal, scale=ctx.scale)
            for grad, where, piece in zip(grads, (queries, keys, keys), pieces, strict=True):
                grad[:, :, where] += piece
        return (*grads, None, None)


def _meetings(segments: Sequence[Segment]) -> Iterator[tuple[slice, slice, bool]]:
    """Keys and queries that meet, and whether causally: a segment with itself, and with what continues it."""
    for start, end, last in segments:
        yield slice(start, end), slice(start, end), True
        if last > end:
            yield slice(start, end), slice(end, last), False
