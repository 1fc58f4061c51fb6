"""Samples as tensors [B, T], and the scores of a forward pass."""

from dataclasses import dataclass, fields

from torch import Tensor

from truing.errors import InvalidValueError
from truing.types.sample import Sample


@dataclass(frozen=True, eq=False, kw_only=True)
class Batch:
    """Samples as tensors [B, T], padded on the right; ``valid`` is True for tokens and False for pads.

    Numbers are 0 at pads, so that a mask can multiply them away; a missing number stays NaN.
    Nothing is shifted: ``logprob[b, t]`` is of ``token_ids[b, t]``.
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
    """Results of one forward pass over a Batch, each [B, T] and 0 at tokens that were not requested."""

    logprob: Tensor  # under the sample's own sampling parameters
    entropy: Tensor  # of the distribution that the token was sampled from, nats
    raw_entropy: Tensor  # of the model's own distribution, nats; no gradient
    value: Tensor | None = None  # of the state before each token, reward units; None without a critic
    mass_below: Tensor | None = None  # probability of all lower ids; NaN where not requested; no gradient
    # sets of experts on record, by token and layer, and those of them that the model itself would not select
    routes: tuple[int, int] = (0, 0)
