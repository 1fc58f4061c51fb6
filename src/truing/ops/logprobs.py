"""Log-probabilities and entropies of given tokens, whole or in chunks of rows."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint  # pyright: ignore[reportUnknownVariableType]

from truing.errors import InvalidValueError
from truing.ops.argument_checks import check_tensors, upcast

CACHED_ROWS = 16
"""Rows of logits per block, so that a block stays in the CPU's cache between passes."""


def token_logprobs(logits_NV: Tensor, ids_N: Tensor) -> Tensor:
    """Return the log-probability of one token per row.

    log p_n = z_{n,id} − log Σ_v exp z_{n,v}  (https://arxiv.org/abs/1706.03762 §3.4)

    Args:
        logits_NV: [N, V] float, nats; -inf where a token cannot be sampled.
        ids_N: [N] int64, the tokens.

    Returns:
        [N] float32 (float64 stays), nats, ≤ 0; -inf for a token that cannot be sampled, 0 for the only
        one that can. N = 0 gives [0].
    """
    check_tensors(logits_NV=(logits_NV, "float"), ids_N=(ids_N, "int64"))
    return _pick(_log_softmax(logits_NV), ids_N)


def entropy(logits_NV: Tensor) -> Tensor:
    """Return the entropy of each row's distribution.

    H_n = −Σ_v p_v log p_v, with 0 · log 0 = 0  (https://arxiv.org/abs/1602.01783 §4)

    Args:
        logits_NV: [N, V] float, nats; -inf where a token cannot be sampled.

    Returns:
        [N] float32 (float64 stays), nats, in [0, log V]; 0 with gradient 0 where only one token is possible.
    """
    check_tensors(logits_NV=(logits_NV, "float"))
    return _entropy(_log_softmax(logits_NV))


def chunked_scores(
    hidden_ND: Tensor,
    head: Callable[[Tensor], Tensor],
    ids_N: Tensor,
    transform: Callable[[Tensor, slice], Tensor],
    rows: int,
    kept: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return scores of tokens from hidden states, with only ``rows`` rows of logits in memory at a time.

    The results equal ``token_logprobs`` and ``entropy`` of transform(head(h)). The backward pass recomputes
    each chunk (https://arxiv.org/abs/1604.06174), so [N, V] is never stored, except for small N.

    Args:
        hidden_ND: [N, D] float, the states that predict the tokens.
        head: [n, D] → [n, V], the model's output layer.
        ids_N: [N] int64, the tokens to score.
        transform: (logits [n, V] float32, their slice of rows) → [n, V], not in place.
        rows: n, rows per chunk.
        kept: the largest N at which activations are kept instead of recomputed.

    Returns:
        Log-probability and entropy under the sampling parameters, and entropy of the model's
        own distribution (no gradient): three [N], nats. N = 0 gives [0], still attached to the graph.
    """
    check_tensors(hidden_ND=(hidden_ND, "float"), ids_N=(ids_N, "int64"))
    if rows < 1:
        raise InvalidValueError(
            "chunked_scores has an invalid number of rows per chunk", got=rows, expected="≥ 1"
        )

    def score(hidden_nD: Tensor, ids_n: Tensor, chunk: slice) -> tuple[Tensor, Tensor, Tensor]:
        logits_nV = upcast(head(hidden_nD))
        processed_nV = transform(logits_nV, chunk)
        logprob_n, entropy_n = _scored(processed_nV, ids_n)
        if processed_nV is logits_nV:
            return logprob_n, entropy_n, entropy_n.detach()
        with torch.no_grad():
            return logprob_n, entropy_n, _scored(logits_nV, ids_n)[1]

    chunks: list[tuple[Tensor, ...]] = []
    for start in range(0, max(len(ids_N), 1), rows):
        chunk = slice(start, min(start + rows, len(ids_N)))
        inputs = (hidden_ND[chunk], ids_N[chunk], chunk)
        if len(ids_N) <= kept:
            chunks.append(score(*inputs))
        else:
            chunks.append(cast("tuple[Tensor, ...]", checkpoint(score, *inputs, use_reentrant=False)))
    logprob_N, entropy_N, raw_entropy_N = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    return logprob_N, entropy_N, raw_entropy_N


def _scored(logits_NV: Tensor, ids_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``token_logprobs`` and ``entropy`` of the same rows."""
    return cast("tuple[Tensor, Tensor]", _Scored.apply(logits_NV, ids_N))  # pyright: ignore[reportUnknownMemberType]


class _Scored(torch.autograd.Function):
    """Log-probability and entropy in one pass over the logits; only e^(z − max) is kept for the gradient."""

    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, ids_N: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        exp_NV = torch.empty_like(logits_NV)
        sum_N, logprob_N, entropy_N = (logits_NV.new_empty(len(ids_N)) for _ in range(3))
        block = CACHED_ROWS if logits_NV.device.type == "cpu" else max(1, len(ids_N))
        for start in range(0, len(ids_N), block):
            part = slice(start, start + block)
            below_nV = logits_NV[part] - logits_NV[part].amax(dim=-1, keepdim=True)
            picked_n = _pick(below_nV, ids_N[part])
            exp_nV = torch.exp(below_nV, out=exp_NV[part])
            sum_N[part] = exp_nV.sum(dim=-1)
            log_sum_n = sum_N[part].log()
            logprob_N[part] = picked_n - log_sum_n
            # far below 0 the exponential is 0, and its product with -inf would be NaN
            entropy_N[part] = log_sum_n - (exp_nV * below_nV.clamp_(min=-1000)).sum(dim=-1) / sum_N[part]
        ctx.save_for_backward(exp_NV, sum_N, entropy_N, ids_N)
        ctx.set_materialize_grads(False)
        return logprob_N, entropy_N

    @staticmethod
    @once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, grad_logprob_N: Tensor | None, grad_entropy_N: Tensor | None
    ) -> tuple[Tensor | None, None]:
        """∂ log p_id / ∂z_v = [v = id] − p_v, and ∂H/∂z_v = −p_v (log p_v + H)."""
        exp_NV, sum_N, entropy_N, ids_N = ctx.saved_tensors
        grad_NV = None
        if grad_logprob_N is not None:
            grad_NV = exp_NV * (-grad_logprob_N / sum_N)[:, None]
            grad_NV[torch.arange(len(ids_N), device=ids_N.device), ids_N] += grad_logprob_N
        if grad_entropy_N is not None:
            p_NV = exp_NV / sum_N[:, None]
            slope_NV = -torch.xlogy(p_NV, p_NV) - p_NV * entropy_N[:, None]
            entropy_grad_NV = slope_NV * grad_entropy_N[:, None]
            grad_NV = entropy_grad_NV if grad_NV is None else grad_NV + entropy_grad_NV
        return grad_NV, None


def _log_softmax(logits_NV: Tensor) -> Tensor:
    """[N, V] → [N, V] in at least float32.

    Not torch's own: in float32 on a CPU it is off by 6e-5 nats with 131,072 ids, and logsumexp by 2e-6.
    """
    logits_NV = upcast(logits_NV)
    return logits_NV - logits_NV.logsumexp(dim=-1, keepdim=True)


def _pick(logp_NV: Tensor, ids_N: Tensor) -> Tensor:
    """[N, V], [N] → [N]."""
    return logp_NV.gather(1, ids_N[:, None])[:, 0]


def _entropy(logp_NV: Tensor) -> Tensor:
    """[N, V] → [N]. The -inf are replaced before the product: 0 · -inf is NaN, and so is its gradient."""
    return -(logp_NV.exp() * logp_NV.masked_fill(torch.isneginf(logp_NV), 0.0)).sum(dim=-1)
