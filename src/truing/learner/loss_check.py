"""A check of loss terms before the backward pass: the token and the number that one is not finite for."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from truing.errors import NonFiniteError
from truing.types.batch import Batch, Scores
from truing.utils.format import with_count

INPUTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "policy": ("policy_mask", ("advantage", "old_logprob", "sampler_logprob", "logprob")),
    "kl": ("kl_mask", ("ref_logprob", "old_logprob", "logprob")),
    "entropy": ("policy_mask", ("entropy",)),
    "value": ("value_mask", ("returns", "value")),
    "supervised": ("supervised_mask", ("logprob",)),
}
"""The mask of each term, and the streams of a batch and of its scores that the term reads."""


def check_loss(losses: Mapping[str, Tensor], step_name: str, batch: Batch, scores: Scores) -> None:
    """Raise if a loss term of a micro-batch is not finite.

    Args:
        losses: [] by term.
        step_name: the step, for the error.
        batch: the micro-batch.
        scores: of its forward pass.
    """
    for name, value in losses.items():
        if not torch.isfinite(value):
            raise NonFiniteError(
                f"the {name} term of the loss is {value.item()} at {step_name}",
                got="; ".join(_not_finite(name, batch, scores)) or f"{value.item()}, of finite numbers",
                expected="a finite number",
                remedy="inspect the step's tokens with `truing tokens RUN`; the weights are unchanged",
            )


def _not_finite(term: str, batch: Batch, scores: Scores) -> Iterator[str]:
    """Yield the streams of a term that are not finite at some of its tokens, with the first of these."""
    mask_name, streams = INPUTS[term]
    mask_BT = getattr(batch, mask_name).cpu()
    of_batch = {name: getattr(batch, name) for name in streams if hasattr(batch, name)}
    of_scores = {f"new {name}": getattr(scores, name) for name in streams if hasattr(scores, name)}
    for name, stream_BT in (of_batch | of_scores).items():
        if stream_BT is None or not (wrong_BT := mask_BT & ~torch.isfinite(stream_BT.cpu())).any():
            continue
        b, t = wrong_BT.nonzero()[0].tolist()
        yield (
            f"{name} is {stream_BT[b, t].item()} at {int(wrong_BT.sum())} of"
            f" {with_count(int(mask_BT.sum()), 'token')}, the first is token {t} of"
            f" {batch.samples[b].sample_id}"
        )
