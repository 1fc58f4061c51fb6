"""Supervised fine-tuning: the demonstrations of the environment, token by token."""

from collections.abc import Sequence

from truing.algos.base import Algorithm
from truing.algos.loss_terms import supervised_term
from truing.config import SftConfig
from truing.ops.masks import MaskPolicy
from truing.rollouts.flatten import flatten
from truing.types.rollout import Rollout
from truing.types.sample import Sample


def all_samples(rollouts: Sequence[Rollout], cfg: SftConfig, mask: MaskPolicy) -> list[Sample]:
    """Every demonstration is trained on, whole."""
    return [sample for rollout in rollouts for sample in flatten(rollout)]


def no_advantages(samples: Sequence[Sample], config: object) -> list[Sample]:
    """Every demonstrated token counts the same."""
    return list(samples)


SFT = Algorithm(
    source="demonstrations",
    to_samples=all_samples,
    needs_reference=lambda setting: False,
    objective=lambda cfg: None,
    critic=lambda cfg: "",
    compute_advantages=no_advantages,
    terms=lambda setting: (supervised_term(1.0),),
)
