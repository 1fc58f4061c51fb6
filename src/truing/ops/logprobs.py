"""Log-probabilities and entropies of chosen tokens, whole or in chunks of rows."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint  # pyright: ignore[reportUnknownVariableType]

from truing.errors import ContractError
from truing.ops.checks import check, widen


def token_logprobs(logits_NV: Tensor, ids_N: Tensor) -> Tensor:
    """Log-probability of one token per row.

    log p_n = z_{n,id} − log Σ_v exp z_{n,v}  (https://arxiv.org/abs/1706.03762 §3.4)

    Args:
        logits_NV: [N, V] float, nats; -inf where a token cannot be drawn.
        ids_N: [N] int64, the tokens.

    Returns:
        [N] float32 (float64 stays), nats, ≤ 0; -inf for a token that cannot be drawn, 0 for the only
        one that can. N = 0 gives [0].
    """
    check(logits_NV=(logits_NV, "float"), ids_N=(ids_N, "int64"))
    return _pick(_log_softmax(logits_NV), ids_N)


def entropy(logits_NV: Tensor) -> Tensor:
    """Entropy of each row's distribution.

    H_n = −Σ_v p_v log p_v, with 0 · log 0 = 0  (https://arxiv.org/abs/1602.01783 §4)

    Args:
        logits_NV: [N, V] float, nats; -inf where a token cannot be drawn.

    Returns:
        [N] float32 (float64 stays), nats, in [0, log V]; 0 with gradient 0 where one token is left.
    """
    check(logits_NV=(logits_NV, "float"))
    return _entropy(_log_softmax(logits_NV))


def chunked_scores(
    hidden_ND: Tensor,
    head: Callable[[Tensor], Tensor],
    ids_N: Tensor,
    transform: Callable[[Tensor, slice], Tensor],
    rows: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Score tokens from hidden states while only ``rows`` rows of logits exist at a time.

    As ``token_logprobs`` and ``entropy`` of transform(head(h)), chunk by chunk; the backward pass
    computes each chunk again (https://arxiv.org/abs/1604.06174), so [N, V] is never held.

    Args:
        hidden_ND: [N, D] float, the states that predict the tokens.
        head: [n, D] → [n, V], the model's output layer.
        ids_N: [N] int64, the tokens to score.
        transform: (logits [n, V] float32, the slice of rows they are) → [n, V], the contract.
        rows: n, rows per chunk.

    Returns:
        Log-probability under the contract, entropy under the contract, and entropy of the model's
        own distribution (no gradient): three [N], nats. N = 0 gives [0], still attached to the graph.
    """
    check(hidden_ND=(hidden_ND, "float"), ids_N=(ids_N, "int64"))
    if rows < 1:
        raise ContractError(
            "chunked_scores cannot work in chunks of this many rows", got=rows, expected="≥ 1"
        )

    def score(hidden_nD: Tensor, ids_n: Tensor, chunk: slice) -> tuple[Tensor, Tensor, Tensor]:
        logits_nV = widen(head(hidden_nD))
        logp_nV = _log_softmax(transform(logits_nV, chunk))
        logprob_n, entropy_n = _pick(logp_nV, ids_n), _entropy(logp_nV)
        with torch.no_grad():
            return logprob_n, entropy_n, _entropy(_log_softmax(logits_nV))

    pieces: list[tuple[Tensor, ...]] = []
    for start in range(0, max(len(ids_N), 1), rows):
        chunk = slice(start, min(start + rows, len(ids_N)))
        inputs = (hidden_ND[chunk], ids_N[chunk], chunk)
        pieces.append(cast("tuple[Tensor, ...]", checkpoint(score, *inputs, use_reentrant=False)))
    logprob_N, entropy_N, raw_entropy_N = (torch.cat(parts) for parts in zip(*pieces, strict=True))
    return logprob_N, entropy_N, raw_entropy_N


def _log_softmax(logits_NV: Tensor) -> Tensor:
    """[N, V] → [N, V] in at least float32."""
    return widen(logits_NV).log_softmax(dim=-1)


def _pick(logp_NV: Tensor, ids_N: Tensor) -> Tensor:
    """[N, V], [N] → [N]."""
    return logp_NV.gather(1, ids_N[:, None])[:, 0]


def _entropy(logp_NV: Tensor) -> Tensor:
    """[N, V] → [N]. The -inf are replaced before the product: 0 · -inf is NaN, and so is its gradient."""
    return -(logp_NV.exp() * logp_NV.masked_fill(torch.isneginf(logp_NV), 0.0)).sum(dim=-1)
