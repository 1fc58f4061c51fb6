"""Tokens whose embeddings look as if nothing had trained them yet: rows that a resize has added."""

from collections.abc import Iterable

import torch
from torch import Tensor

NEW = "untrained embeddings of"
"""How the note begins."""

NEAR = 0.1
"""Of the usual distance of a row from the mean of all: transformers adds rows at about their mean."""

ROWS = 4096
"""Rows that the usual distance is measured on."""


@torch.no_grad()
def untrained_rows(weight_VD: Tensor, ids: Iterable[int]) -> list[int]:
    """Return the ids whose embedding is zero or nearly the mean of all embeddings."""
    mean_D = weight_VD.float().mean(0)
    usual = float((weight_VD[:ROWS].float() - mean_D).norm(dim=1).median())
    rows = {index: weight_VD[index].float() for index in ids if index < len(weight_VD)}
    return [
        index
        for index, row_D in rows.items()
        if not row_D.any() or float((row_D - mean_D).norm()) < NEAR * usual
    ]


def new_tokens_note(tokens: Iterable[str]) -> str:
    """Return the note on tokens whose embeddings an adapter on linear layers leaves as they are."""
    return (
        f"{NEW} {', '.join(tokens)}: they stay as they are, since an adapter on linear layers trains none"
        " (Truing has no trainable_token_indices and no modules_to_save); without an adapter, so with"
        " lora = false or no peft_config, all weights are trained"
    )
