"""Supervised fine-tuning on the demonstrations of the environment."""

from collections.abc import Sequence

from truing.algos.base import Algorithm
from truing.algos.flatten import flatten
from truing.algos.loss_terms import supervised_term
from truing.config import SftConfig
from truing.ops.masks import MaskPolicy
from truing.types.rollout import Rollout
from truing.types.sample import Sample


def all_samples(rollouts: Sequence[Rollout], cfg: SftConfig, mask: MaskPolicy) -> list[Sample]:
    """Return the samples of all demonstrations."""
    return [sample for rollout in rollouts for sample in flatten(rollout)]


def no_advantages(samples: Sequence[Sample], config: object) -> list[Sample]:
    """Return the samples unchanged: supervised terms have no advantages."""
    return list(samples)


SFT = Algorithm(
    source="demonstrations",
    to_samples=all_samples,
    needs_reference=lambda config: False,
    objective=lambda cfg: None,
    critic=lambda cfg: "",
    compute_advantages=no_advantages,
    terms=lambda config: (supervised_term(1.0),),
)
