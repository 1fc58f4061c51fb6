"""Attention along a token tree, for any model with transformers' attention interface.

The queries of each segment attend to it causally; the queries of all its continuations attend to all of it.
So a query attends to its path piece by piece; the outputs are combined by their shares of its softmax. On a
CPU no L × L matrix is stored; on CUDA FlexAttention computes the same in blocks.
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
# What SDPA itself calls on a CPU. The forward also returns the log of the softmax's sum.
FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
FLASH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
UNSUPPORTED = ("softcap", "s_aux", "position_bias", "indices", "block_indices")
"""Arguments that some models pass to their attention and that a tree does not support."""

KERNEL: Any = {"BACKEND": "TRITON"}
"""FlexAttention's kernel for any length: the one for fewer than 128 queries does not compile for all."""

MASK_TOKENS = 256
"""The fewest tokens of a mask for FlexAttention: two blocks."""

Attention = Callable[[int, Tensor, Tensor, Tensor, float], Tensor]
"""index, query [1, heads, L, D], key and value [1, key heads, L, D], scale → output, like query.

``index`` counts the attention calls of a forward: mostly one per layer, but some models attend twice.
"""

_CURRENT: ContextVar[Callable[[Tensor, Tensor, Tensor, float], Tensor]] = ContextVar("attention")


_SCORES: ContextVar[list[float] | None] = ContextVar("scores", default=None)


@contextmanager
def largest_scores() -> Iterator[list[float]]:
    """Yield a list of each tree attention's largest logarithm of a softmax's sum within the block, on a CPU.

    Fused attention knows a score to its last digit: each share of a softmax is off by as much.
    """
    scores: list[float] = []
    token = _SCORES.set(scores)
    try:
        yield scores
    finally:
        _SCORES.reset(token)


@contextmanager
def use_attention(causal: PreTrainedModel, attention: Attention) -> Iterator[None]:
    """Within the block one forward of the model uses ``attention``."""
    index = count()
    token = _CURRENT.set(lambda *args: attention(next(index), *args))
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
    """Compute one layer, as transformers calls it. Narrower values are padded for flash attention."""
    unsupported = [name for name in UNSUPPORTED if kwargs.get(name) is not None]
    if dropout or attention_mask is not None or unsupported or kwargs.get("is_causal") is False:
        raise ModelError(
            "this model's attention cannot be computed in a tree",
            got=unsupported or {"dropout": dropout, "mask": attention_mask is not None},
            expected="plain causal attention",
            remedy="use another architecture",
        )
    query, key, value = _as_autocast(query, key, value)
    width, narrow = query.shape[-1], value.shape[-1]
    wide = nn.functional.pad(value, (0, width - narrow)) if narrow < width else value
    scale = width**-0.5 if scaling is None else scaling
    out = _CURRENT.get()(query, key, wide, scale)
    return out[..., :narrow].transpose(1, 2).contiguous(), None


def _as_autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return query, key and value in autocast's dtype if it is on: rotary positions leave some in float32."""
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind):
        return tensors
    return tuple(each.to(torch.get_autocast_dtype(kind)) for each in tensors)


AttentionInterface.register(NAME, _attend)  # type: ignore[arg-type]  # its protocol has more parameters than it passes


def tree_attention(tree: TokenTree, device: torch.device) -> Attention:
    """Return the attention along a tree, with gradients."""
    return segment_attention(tree) if device.type == "cpu" else flex_attention(tree, device)


def segment_attention(tree: TokenTree) -> Attention:
    """Return the attention along a tree by flash attention, segment by segment."""
    segments = tree.segments()
    return lambda _, q, k, v, scale: _TreeAttention.apply(q, k, v, segments, scale)


def flex_attention(tree: TokenTree, device: torch.device) -> Attention:
    """Return the attention along a tree by FlexAttention, under the tree as a mask."""
    mask, size = block_mask(tree, device), len(tree.ends_L)
    more = mask.shape[-1] - size

    def attend(_: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        padded = (nn.functional.pad(each, (0, 0, 0, more)) for each in (q, k, v))
        out = _compiled_flex()(*padded, block_mask=mask, scale=scale, enable_gqa=True, kernel_options=KERNEL)
        return out[:, :, :size]

    return attend


def block_mask(tree: TokenTree, device: torch.device) -> flex.BlockMask:
    """Return the tree as a mask for FlexAttention; a small tree is padded by tokens that see themselves.

    A mask of a single block would be compiled anew, which takes seconds.
    """
    size = max(len(tree.ends_L), MASK_TOKENS)
    ends = torch.cat([tree.ends_L, torch.arange(len(tree.ends_L), size) + 1]).to(device)

    def sees(_batch: Tensor, _head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (k <= q) & (q < ends[k])

    mask = flex.create_block_mask(sees, None, None, size, size, device=device.type)
    for name, table in vars(mask).items():
        if isinstance(table, Tensor):
            blocks = [2] if name.endswith("num_blocks") else [2, 3]
            torch._dynamo.maybe_mark_dynamic(table, blocks)
    torch._dynamo.maybe_mark_dynamic(ends, 0)
    return mask


@cache
def _compiled_flex() -> Any:
    """Return the compiled FlexAttention; only this is fast."""
    return torch.compile(flex.flex_attention, dynamic=True)


@dataclass(eq=False)
class PartialAttention:
    """The attention of queries [1, heads, L, D] over the keys so far: first their own, then shared ones.

    Pieces are combined in float32 also for queries in bfloat16: rounded after each piece, the shares of the
    softmax would lose two thirds of their digits, and flash attention's backward pass wants them in float32.
    """

    query: Tensor
    out: Tensor  # shaped like query, at least float32
    lse: Tensor  # [1, heads, L], at least float32: log of the sum of exponentials

    @classmethod
    def empty(cls, query: Tensor) -> "PartialAttention":
        """Return it without keys; the values are arbitrary until ``attend_causal``."""
        dtype = summing_dtype(query)
        return cls(query, torch.empty_like(query, dtype=dtype), query.new_empty(query.shape[:3], dtype=dtype))

    def result(self) -> Tensor:
        """Return the output in the dtype of the query."""
        return self.out.to(self.query.dtype)

    def attend_causal(self, queries: slice, key: Tensor, value: Tensor, scale: float) -> None:
        """Let some queries attend to the keys of the same tokens, causally; this must come first."""
        piece, lse = FLASH(self.query[:, :, queries], key, value, 0.0, True, scale=scale)
        self.out[:, :, queries], self.lse[:, :, queries] = piece, lse

    def attend(self, queries: slice, key: Tensor, value: Tensor, scale: float) -> None:
        """Let some queries attend to all of these keys, which must be new to them."""
        piece, lse = FLASH(self.query[:, :, queries], key, value, 0.0, False, scale=scale)
        before, out = self.lse[:, :, queries], self.out[:, :, queries]
        # two shares that sum to 1, also beside scores so large that the digits of their logarithms are lost
        out.lerp_(piece.to(out.dtype), (lse - before).sigmoid()[..., None])
        self.lse[:, :, queries] = torch.logaddexp(before, lse)


def summing_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype in which parts of a tensor are summed: at least float32."""
    return torch.promote_types(tensor.dtype, torch.float32)


class _TreeAttention(torch.autograd.Function):
    """Attention along a tree, segment by segment."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, segments: list[Segment], scale: float
    ) -> Tensor:
        partial = PartialAttention.empty(q)
        for keys, queries, causal in _attention_pairs(segments):
            attend = partial.attend_causal if causal else partial.attend
            attend(queries, k[:, :, keys], v[:, :, keys], scale)
        if (scores := _SCORES.get()) is not None:
            scores.append(float(partial.lse.abs().max()))
        out = partial.result()
        ctx.save_for_backward(q, k, v, out, partial.lse)
        ctx.segments, ctx.scale = segments, scale
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Sum the pieces' gradients; ``lse`` of the whole path gives each piece its softmax."""
        q, k, v, out, lse = ctx.saved_tensors
        grads = [torch.empty_like(each, dtype=summing_dtype(each)) for each in (q, k, v)]
        for keys, queries, causal in _attention_pairs(ctx.segments):
            inputs = [grad_out[:, :, queries], q[:, :, queries], k[:, :, keys], v[:, :, keys]]
            whole = [out[:, :, queries], lse[:, :, queries]]
            pieces = FLASH_BACKWARD(*inputs, *whole, 0.0, causal, scale=ctx.scale)
            for grad, where, piece in zip(grads, (queries, keys, keys), pieces, strict=True):
                if causal:  # the first gradient of these tokens
                    grad[:, :, where] = piece
                else:
                    grad[:, :, where] += piece
        return (*(grad.to(q.dtype) for grad in grads), None, None)


def _attention_pairs(segments: list[Segment]) -> Iterator[tuple[slice, slice, bool]]:
    """Yield keys, their queries and whether the attention is causal: each segment with itself first."""
    for start, end, _ in segments:
        yield slice(start, end), slice(start, end), True
    for start, end, last in segments:
        if last > end:
            yield slice(start, end), slice(end, last), False
