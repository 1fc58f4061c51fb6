"""The interface of an algorithm: source of samples, advantages, and the terms of the loss."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from truing.config import (
    BootstrapConfig,
    CorrectionConfig,
    EntropyConfig,
    GatesConfig,
    KlConfig,
    Recipe,
)
from truing.ops.losses import Objective
from truing.ops.masks import MaskPolicy
from truing.types.batch import Batch, Scores
from truing.types.rollout import Rollout
from truing.types.sample import Sample


@dataclass(frozen=True)
class StepConfig:
    """The configuration of a step: the table of its stage, and the tables that all policy stages share."""

    stage: Any
    kl: KlConfig = field(default_factory=KlConfig)
    entropy: EntropyConfig = field(default_factory=EntropyConfig)
    bootstrap: BootstrapConfig = field(default_factory=BootstrapConfig)
    gates: GatesConfig = field(default_factory=GatesConfig)
    correction: CorrectionConfig = field(default_factory=CorrectionConfig)

    @classmethod
    def from_recipe(cls, recipe: Recipe, stage: str) -> "StepConfig":
        """Return the configuration of a stage; ``learner/coefficients.py`` sets the weights of a step."""
        tables = (recipe.kl, recipe.entropy, recipe.bootstrap, recipe.gates, recipe.correction)
        return cls(recipe.stage(stage), *tables)


@dataclass(frozen=True)
class LossTerm:
    """One term of a loss. The loss is the sum of terms times weights."""

    name: str
    weight: float
    has_gradient: Callable[[Sample], bool]
    """Whether it can have a gradient on a sample; a sample without any is not computed."""
    denominator: Callable[[Sequence[Sample]], float]
    """Its denominator over a minibatch; the same for each micro-batch."""
    loss: Callable[[Batch, Scores, float], Tensor]
    """A micro-batch's share of it, without the weight."""


@dataclass(frozen=True)
class Algorithm:
    """The functions of an algorithm that ``learner/step.py`` calls."""

    source: Literal["demonstrations", "rollouts"]
    """The data that a step starts from."""
    to_samples: Callable[[Sequence[Rollout], Any, MaskPolicy], list[Sample]]
    """Rollouts → samples, by the stage's table and the mask policy."""
    needs_reference: Callable[[StepConfig], bool]
    """Whether advantages or a loss term need the reference's log-probabilities."""
    objective: Callable[[Any], Objective | None]
    """The policy loss by the stage's table, or None."""
    critic: Callable[[Any], Literal["", "head", "separate"]]
    """The critic by the stage's table; "" is none."""
    compute_advantages: Callable[[Sequence[Sample], StepConfig], list[Sample]]
    """Samples with advantages, as new objects."""
    terms: Callable[[StepConfig], tuple[LossTerm, ...]]
    """The terms of the loss."""
