"""Samples as tensors [B, T], what a forward says of them, and the record of an update."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from truing.errors import InvalidValueError
from truing.types.sample import Sample


@dataclass(frozen=True, eq=False, kw_only=True)
class Batch:
    """Samples as tensors [B, T], padded on the right; ``valid`` tells tokens from pads.

    Numbers are 0 where a pad is, so that a mask can multiply them away; NaN stays where a number was
    not recorded. Nothing is shifted: ``logprob[b, t]`` is of ``token_ids[b, t]``.
    """

    samples: tuple[Sample, ...]
    token_ids: Tensor
    valid: Tensor
    policy_mask: Tensor
    kl_mask: Tensor
    value_mask: Tensor
    supervised_mask: Tensor
    sampler_logprob: Tensor
    old_logprob: Tensor
    ref_logprob: Tensor
    value: Tensor
    advantage: Tensor
    returns: Tensor

    def __post_init__(self) -> None:
        shape = self.token_ids.shape
        for item in fields(self)[1:]:
            got = getattr(self, item.name).shape
            if got != shape:
                raise InvalidValueError(
                    f"Batch.{item.name} has another shape", got=tuple(got), expected=tuple(shape)
                )


@dataclass(frozen=True, eq=False)
class Scores:
    """What one forward says of a Batch, each [B, T] and 0 where nothing was asked for."""

    logprob: Tensor  # under the sample's own contract
    entropy: Tensor  # of the distribution that was drawn from, nats
    raw_entropy: Tensor  # of the model's own distribution, nats; no gradient
    value: Tensor | None = None  # of the state before each token, reward units; None without a critic
    mass_below: Tensor | None = (
        None  # probability of all lower ids, NaN where it was not asked for; no gradient
    )


@dataclass(frozen=True, eq=False)
class StepRecord:
    """One update as the run directory keeps it."""

    step: int
    stage: str
    metrics: Mapping[str, float]
    loss_label: str
    samples: tuple[Sample, ...]
    seconds: Mapping[str, float]
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])  # what the doctor judges beside metrics
