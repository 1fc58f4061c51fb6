"""The sampling parameters as one pure function: the model's logits → the logits to sample from.

Sampler, trainer, reference and doctor all call ``processed_logits``, so the trained distribution is
the sampled one. The order of the steps:

    repetition → presence and frequency penalty → stop ids banned until min_new_tokens → grammar
    → temperature → top-k → top-p → min-p   (each on the renormalized result of the one before)

Transformers applies the same steps in this order. Bans only write -inf, so their place among the
penalties does not matter. vLLM differs in two things: it applies min-p before top-k and top-p (another
nucleus if min-p and top-p are both on), and its repetition penalty counts the prompt.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from truing.errors import InvalidValueError, NonFiniteError
from truing.ops.argument_checks import check_tensors, upcast
from truing.types.sampling_params import SamplingParams

_WINDOW = 512  # a nucleus is nearly always inside the top 512, and those cost a tenth of a full sort
_BLOCK = 256  # ids: a running sum over all of a vocabulary costs ten times one over its blocks
_BELOW_ONE = 1 - 2**-53


def processed_logits(
    logits_NV: Tensor,
    sampling_params: SamplingParams,
    generated_NH: Tensor,
    *,
    allowed_NV: Tensor | None = None,
    support_NV: Tensor | None = None,
) -> Tensor:
    """Return the logits that a token is sampled from.

    z = truncate((penalize(l) + ban) / temperature); p = softmax(z). Temperature 0 keeps the argmax
    only (the lowest id of equals), so p = 1 there. Top-k keeps all logits equal to the k-th, as
    transformers does; top-p keeps the smallest set with mass ≥ p, at least one token, any of equals
    at its edge (https://arxiv.org/abs/1904.09751); min-p keeps p ≥ min_p · max p
    (https://arxiv.org/abs/2407.01082); penalties as in https://arxiv.org/abs/1909.05858 (repetition)
    and the OpenAI API (presence: once; frequency: per occurrence).

    Args:
        logits_NV: [N, V] float, nats; gradients flow through, truncated entries get 0.
        sampling_params: the sampling parameters.
        generated_NH: [N, H] int64, the ids generated so far in the current turn (never the prompt),
            -1 where a row has fewer; H may be 0.
        allowed_NV: [N, V] bool, the tokens that a grammar allows.
        support_NV: [N, V] bool, the support recorded when the token was sampled. It replaces top-k,
            top-p and min-p, so a sampled token stays inside when the weights change. Under
            temperature 0 the argmax is taken inside it: record the one id, or a tie may change.

    Returns:
        [N, V] float32 (float64 stays), -inf where a token cannot be sampled. A row with no token left
        raises InvalidValueError; N = 0 gives [0, V].
    """
    check_tensors(
        logits_NV=(logits_NV, "float"),
        generated_NH=(generated_NH, "int64"),
        allowed_NV=(allowed_NV, "bool"),
        support_NV=(support_NV, "bool"),
    )
    _check_ids("generated_NH", generated_NH, -1, logits_NV.shape[1])
    scores_NV = _apply_penalties(upcast(logits_NV), sampling_params, generated_NH)
    scores_NV = _ban_stops(scores_NV, sampling_params, generated_NH)
    if allowed_NV is not None:
        scores_NV = _mask_out(scores_NV, allowed_NV)
    if sampling_params.temperature not in (0, 1):
        scores_NV = scores_NV / sampling_params.temperature
    scores_NV = (
        _truncate(scores_NV, sampling_params) if support_NV is None else _mask_out(scores_NV, support_NV)
    )
    if sampling_params.temperature == 0:
        best_N1 = scores_NV.detach().argmax(dim=-1, keepdim=True)
        scores_NV = _mask_out(
            scores_NV, torch.zeros_like(scores_NV, dtype=torch.bool).scatter(1, best_N1, True)
        )
    _check_drawable(scores_NV)
    return scores_NV


def draw(logits_NV: Tensor, uniform_N: Tensor) -> Tensor:
    """Sample one id per row by the inverse of the cumulative distribution: first a block of ids, then an id.

    id = min{v : Σ_{w ≤ v} p_w > u}, p = softmax(logits)
    (https://en.wikipedia.org/wiki/Inverse_transform_sampling).

    Args:
        logits_NV: [N, V] float, nats, from ``processed_logits``.
        uniform_N: [N] float64 in [0, 1), the caller's random numbers.

    Returns:
        [N] int64, never an id whose logit is -inf. A row of NaN raises NonFiniteError.
    """
    check_tensors(logits_NV=(logits_NV, "float"), uniform_N=(uniform_N, "float"))
    if not ((uniform_N >= 0) & (uniform_N < 1)).all() or uniform_N.dtype != torch.float64:
        raise InvalidValueError(
            "uniform_N is out of range, or has the wrong dtype", got=uniform_N, expected="float64 in [0, 1)"
        )
    scores_NV = upcast(logits_NV)
    mass_NV = (scores_NV - scores_NV.amax(dim=-1, keepdim=True)).exp()
    full_blocks = mass_NV.shape[1] // _BLOCK * _BLOCK
    blocks_NB = mass_NV[:, :full_blocks].reshape(len(mass_NV), full_blocks // _BLOCK, _BLOCK).sum(dim=-1)
    blocks_NB = torch.cat([blocks_NB, mass_NV[:, full_blocks:].sum(dim=-1, keepdim=True)], dim=1).double()
    if not torch.isfinite(blocks_NB).all():
        raise NonFiniteError(
            "a row of logits is not a distribution",
            got="NaN",
            remedy="the policy has diverged: lower the learning rate, or add a [guard], which rolls back",
        )
    block_N, rest_N = _invert(blocks_NB, uniform_N)
    ids_NK = block_N[:, None] * _BLOCK + torch.arange(_BLOCK, device=block_N.device)
    beyond_NK = ids_NK >= mass_NV.shape[1]
    inside_NK = mass_NV.gather(1, ids_NK.masked_fill(beyond_NK, 0)).double().masked_fill(beyond_NK, 0.0)
    return block_N * _BLOCK + _invert(inside_NK, rest_N)[0]


def mass_below(logits_NV: Tensor, ids_N: Tensor) -> Tensor:
    """Return the probability of all ids below one: the start of its interval in the cumulative distribution.

    F_n = Σ_{v < id_n} p_{n,v}, p = softmax(logits); ``draw`` gives id_n where F_n ≤ u < F_n + p_{n,id}.
    Worked example: p = (0.5, 0.3, 0.2), id 2 → 0.8.

    Args:
        logits_NV: [N, V] float, nats; -inf where an id cannot be sampled.
        ids_N: [N] int64.

    Returns:
        [N] float64, in [0, 1].
    """
    check_tensors(logits_NV=(logits_NV, "float"), ids_N=(ids_N, "int64"))
    scores_NV = upcast(logits_NV)
    mass_NV = (scores_NV - scores_NV.amax(dim=-1, keepdim=True)).exp()
    lower_NV = torch.arange(mass_NV.shape[1], device=ids_N.device) < ids_N[:, None]
    return (mass_NV * lower_NV).sum(dim=-1).double() / mass_NV.sum(dim=-1).double()


def _invert(mass_NK: Tensor, uniform_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return the entry of each row that ``uniform_N`` falls on (mass > 0), and the position in it, [0, 1)."""
    cumulative_NK = mass_NK.cumsum(dim=-1)
    target_N1 = uniform_N[:, None] * cumulative_NK[:, -1:]
    index_N1 = torch.searchsorted(cumulative_NK, target_N1, right=True)
    mass_N1 = mass_NK.gather(1, index_N1)
    into_N1 = (target_N1 - cumulative_NK.gather(1, index_N1) + mass_N1) / mass_N1
    return index_N1[:, 0], into_N1.clamp(0, _BELOW_ONE)[:, 0]


def support_mask(supports: Sequence[Tensor], vocab: int) -> Tensor:
    """Unpack recorded supports into the mask that ``processed_logits`` takes.

    m_{n,v} = [v ∈ support_n], or 1 for all v where support_n is empty. Negative entries are excluded ids,
    each v as −1 − v, and all others are allowed.
    Worked example: ``support_mask([tensor([2]), tensor([]), tensor([-3])], 3)`` is
    [[0, 0, 1], [1, 1, 1], [1, 1, 0]].

    Args:
        supports: N tensors [K] of integer ids, K different for each, from ``support_ids``.
        vocab: V, number of ids.

    Returns:
        [N, V] bool, on the CPU; [0, V] for no supports.
    """
    length_N = torch.tensor([len(ids_K) for ids_K in supports], dtype=torch.int64)
    ids = torch.cat([*supports, length_N[:0]]).long()
    _check_ids("supports", ids, -vocab, vocab)
    rows = torch.arange(len(supports)).repeat_interleave(length_N)
    mask_NV = torch.ones(len(supports), vocab, dtype=torch.bool)
    mask_NV[rows[ids >= 0]] = False
    mask_NV[rows, torch.where(ids >= 0, ids, -1 - ids)] = ids >= 0
    return mask_NV


def support_ids(mask_V: Tensor) -> Tensor:
    """Pack a mask into a support to record: the allowed ids, or the excluded ids if they are fewer.

    Worked example: 1 0 0 → [1 in] = [0] · 1 1 0 → [2 out] = [−3] · 1 1 1 → [].

    Args:
        mask_V: [V] bool, ids that can be sampled.

    Returns:
        [K] int32, on the CPU; what ``support_mask`` unpacks to ``mask_V``.
    """
    check_tensors(mask_V=(mask_V, "bool"))
    inside = mask_V.nonzero()[:, 0]
    if 2 * len(inside) > len(mask_V):
        inside = -1 - (~mask_V).nonzero()[:, 0]
    return inside.int().cpu()


def _apply_penalties(scores_NV: Tensor, sampling_params: SamplingParams, generated_NH: Tensor) -> Tensor:
    """Apply repetition, presence and frequency penalties for the generated ids: [N, V]."""
    repetition = sampling_params.repetition_penalty
    if repetition == 1 and sampling_params.presence_penalty == 0 and sampling_params.frequency_penalty == 0:
        return scores_NV
    drawn_NH = (generated_NH >= 0).to(scores_NV.dtype)
    count_NV = torch.zeros_like(scores_NV).scatter_add(1, generated_NH.clamp(min=0), drawn_NH)
    seen_NV = count_NV > 0
    damped_NV = torch.where(scores_NV > 0, scores_NV / repetition, scores_NV * repetition)
    scores_NV = torch.where(seen_NV, damped_NV, scores_NV)
    return (
        scores_NV - sampling_params.presence_penalty * seen_NV - sampling_params.frequency_penalty * count_NV
    )


def _ban_stops(scores_NV: Tensor, sampling_params: SamplingParams, generated_NH: Tensor) -> Tensor:
    """Ban stop ids in rows with fewer than ``min_new_tokens`` generated tokens: [N, V]."""
    if sampling_params.min_new_tokens == 0 or not sampling_params.stop_ids:
        return scores_NV
    stops_S = torch.tensor(sampling_params.stop_ids, dtype=torch.int64, device=scores_NV.device)
    _check_ids("stop_ids", stops_S, 0, scores_NV.shape[1])
    early_N = (generated_NH >= 0).sum(dim=1) < sampling_params.min_new_tokens
    return scores_NV.index_put((early_N.nonzero(), stops_S), scores_NV.new_tensor(-math.inf))


def _truncate(scores_NV: Tensor, sampling_params: SamplingParams) -> Tensor:
    """Apply top-k, then top-p, then min-p, each to the rest: [N, V]. The choice of tokens has no gradient."""
    vocab = scores_NV.shape[1]
    if 0 < sampling_params.top_k < vocab:
        kth_N1 = scores_NV.detach().topk(sampling_params.top_k).values[:, -1:]
        scores_NV = _mask_out(scores_NV, scores_NV.detach() >= kth_N1)
    if sampling_params.top_p < 1:
        scores_NV = _mask_out(scores_NV, _nucleus(scores_NV.detach(), sampling_params.top_p))
    if sampling_params.min_p > 0:
        floor_N1 = scores_NV.detach().amax(dim=-1, keepdim=True) + math.log(sampling_params.min_p)
        scores_NV = _mask_out(scores_NV, scores_NV.detach() >= floor_N1)
    return scores_NV


def _nucleus(scores_NV: Tensor, top_p: float, width: int = _WINDOW) -> Tensor:
    """Return the smallest set of tokens with mass ≥ ``top_p``, searched in the top ``width``: [N, V] bool."""
    vocab = scores_NV.shape[1]
    ids_NK = scores_NV.topk(min(width, vocab)).indices
    mass_NK = scores_NV.softmax(dim=-1).gather(1, ids_NK).double()
    kept_NK = mass_NK.cumsum(dim=-1) - mass_NK < top_p
    nucleus_NV = torch.zeros_like(scores_NV, dtype=torch.bool).scatter(1, ids_NK, kept_NK)
    wider_N = kept_NK[:, -1]
    if width < vocab and wider_N.any():
        nucleus_NV[wider_N] = _nucleus(scores_NV[wider_N], top_p, vocab)
    return nucleus_NV


def _mask_out(scores_NV: Tensor, keep_NV: Tensor) -> Tensor:
    """Write -inf where ``keep_NV`` is False: [N, V]."""
    return scores_NV.masked_fill(~keep_NV, -math.inf)


def _check_drawable(scores_NV: Tensor) -> None:
    """Raise unless each row has a token that can be sampled."""
    if torch.isneginf(scores_NV.detach().amax(dim=-1)).any():
        raise InvalidValueError(
            "a row of logits has no token that can be sampled",
            expected="at least one finite logit per row",
            remedy="check the logits for NaN, then the grammar, the stop ids and the recorded support",
        )


def _check_ids(name: str, ids: Tensor, low: int, vocab: int) -> None:
    """Raise unless all ids lie in [low, vocab)."""
    if ids.numel() and not (low <= int(ids.min()) and int(ids.max()) < vocab):
        got = (int(ids.min()), int(ids.max()))
        raise InvalidValueError(
            f"{name} holds an id outside the vocabulary", got=got, expected=f"[{low}, {vocab})"
        )
