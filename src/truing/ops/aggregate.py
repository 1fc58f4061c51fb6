"""Numbers per token → one number, over an explicit denominator.

The denominator is counted once over the whole minibatch and passed to each micro-batch, so that the
losses of k micro-batches sum to the loss of one, and so do their gradients.
"""

from typing import Literal

import torch
from torch import Tensor

from truing.errors import InvalidValueError
from truing.ops.argument_checks import check_choice, check_tensors
from truing.ops.masks import zero_outside

Aggregation = Literal["token_mean", "sequence_mean", "sequence_sum"]


def aggregate(per_token_BT: Tensor, mask_BT: Tensor, how: Aggregation, denominator: float) -> Tensor:
    """Return a micro-batch's share of the minibatch's loss.

    token_mean      Σ_{i,t} m x / D                  D = tokens              (DAPO, https://arxiv.org/abs/2503.14476)
    sequence_mean   Σ_i (Σ_t m x / Σ_t m) / D        D = sequences           (GRPO, https://arxiv.org/abs/2402.03300)
    sequence_sum    Σ_{i,t} m x / D                  D = sequences × budget  (Dr. GRPO, https://arxiv.org/abs/2503.20783)

    Args:
        per_token_BT: [B, T] float, any unit; may be NaN where the mask is off.
        mask_BT: [B, T] bool, the tokens that count.
        how: which of the three.
        denominator: D of the whole minibatch, from ``denominator``.

    Returns:
        [] like ``per_token_BT``. A row with an empty mask adds 0, and is counted among the sequences.
    """
    check_choice("how", how, Aggregation)
    check_tensors(per_token_BT=(per_token_BT, "float"), mask_BT=(mask_BT, "bool"))
    if not denominator > 0:
        raise InvalidValueError(
            "a loss cannot be divided by this denominator", got=denominator, expected="> 0"
        )
    sum_B = zero_outside(per_token_BT, mask_BT).sum(dim=1)
    if how == "sequence_mean":
        sum_B = sum_B / mask_BT.sum(dim=1).clamp(min=1)
    return sum_B.sum() / denominator


def denominator(tokens_B: Tensor, how: Aggregation, max_new_tokens: int) -> float:
    """Return the denominator of a whole minibatch.

    token_mean: max(Σ_i n_i, 1);  sequence_mean: B;  sequence_sum: B · max_new_tokens
    (https://arxiv.org/abs/2503.20783 compares them).

    Args:
        tokens_B: [B] int64, masked tokens of each sequence of the minibatch: ``mask_BT.sum(dim=1)``.
        how: which of the three.
        max_new_tokens: the generation budget, tokens; ``sequence_sum`` alone reads it.

    Returns:
        A count, > 0. With no masked token at all it is 1 under ``token_mean``: the loss is then 0, not
        0/0. B = 0 raises InvalidValueError.
    """
    check_choice("how", how, Aggregation)
    check_tensors(tokens_B=(tokens_B, "int64"))
    if len(tokens_B) == 0:
        raise InvalidValueError("an empty minibatch has no denominator", got="0 sequences", expected="≥ 1")
    if how == "token_mean":
        return float(torch.clamp(tokens_B.sum(), min=1))
    return float(len(tokens_B) if how == "sequence_mean" else len(tokens_B) * max_new_tokens)
