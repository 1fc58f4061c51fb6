"""What an algorithm is: where its samples come from, how they earn credit, and a loss."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from truing.ops.losses import Objective
from truing.ops.masks import MaskPolicy
from truing.types import Batch, Rollout, Sample, Scores


@dataclass(frozen=True)
class Algorithm:
    """Functions that ``train/step.py`` calls without knowing whose they are."""

    source: Literal["demonstrations", "rollouts"]
    """What a step starts from."""
    to_samples: Callable[[Sequence[Rollout], Any, MaskPolicy], list[Sample]]
    """Rollouts to samples, under the declared mask policy."""
    needs_reference: Callable[[Any], bool]
    """Whether a term of the loss needs the reference's log-probabilities."""
    objective: Callable[[Any], Objective | None]
    """The policy loss; None where there is none."""
    credit: Callable[[Sequence[Sample], Any], list[Sample]]
    """Samples with advantages, as new objects."""
    denominator: Callable[[Sequence[Sample], Any], float]
    """What the loss of a minibatch is divided by; the same for each of its micro-batches."""
    pulls: Callable[[Sample, Any], bool]
    """Whether a term of the loss can have a gradient on a sample; what has none is not computed."""
    loss: Callable[[Batch, Scores, Any, float], dict[str, Tensor]]
    """Named terms of the loss, each already weighted; their sum is what is minimised."""
