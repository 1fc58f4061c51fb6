"""Mismatch of another engine and the trainer, by class of token, beside what a publication measured."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from truing.metrics.step import Metrics
from truing.metrics.token_numbers import drop_nan
from truing.ops.kl import kl_k3
from truing.types.status import FinishReason
from truing.types.step_table import StepTable

CLASSES = ("stop", "first", "structure", "text")
"""Classes of sampled tokens; a token has the first one that fits it."""


def engine_mismatch_metrics(table: StepTable, publication: Mapping[str, Any]) -> Metrics:
    """Return the mismatch of each class of token, and the engine's own difference at its publication.

    Args:
        table: with the passes of the first optimizer step, before any weight changes.
        publication: the receipt of the weights that sampled them.
    """
    metrics = {
        "mismatch/steps_behind": float(publication["behind"]),
        "mismatch/engine_max_abs": float(publication["rows"]["largest"]),
    }
    for name, mask_N in token_classes(table).items():
        sampler_N, new_N = drop_nan(
            *(table.stream(stream)[mask_N] for stream in ("sampler_logprob", "new_logprob"))
        )
        if len(new_N):
            metrics[f"mismatch_{name}/k3"] = float(kl_k3(sampler_N, new_N).mean())
    return metrics


def routes_metric(routes: tuple[int, int]) -> Metrics:
    """Return the share of recorded sets of experts that the trainer would not select; none without a record.

    ``routes`` are the sets on record, by token and layer of the forward, and those of them that differ.
    """
    known, other = routes
    return {"mismatch/routes_differ": other / known} if known else {}


def token_classes(table: StepTable) -> dict[str, Tensor]:
    """Return the sampled tokens of each class: [N] bool.

    ``stop`` ends a turn, ``first`` begins one, ``structure`` is syntax of a tool call, ``text`` is all else.
    """
    stop_N, first_N = torch.zeros_like(table.sampled), torch.zeros_like(table.sampled)
    for _, sample, part in table.slices():
        for turn in sample.turns:
            if turn.end > turn.start:
                first_N[part.start + turn.start] = True
                stop_N[part.start + turn.end - 1] = turn.finish_reason == FinishReason.STOP
    remaining_N, masks = table.sampled.clone(), {}
    of_class = (stop_N, first_N, table.streams["structure"], torch.ones_like(stop_N))
    for name, class_N in zip(CLASSES, of_class, strict=True):
        masks[name] = remaining_N & class_N
        remaining_N &= ~class_N
    return masks
