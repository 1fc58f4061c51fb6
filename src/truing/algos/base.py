"""What an algorithm is: where its samples come from, how they earn credit, and the terms of its loss."""

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
class UpdateConfig:
    """What an update is computed by: the table of its stage, and those that all policy stages share."""

    stage: Any
    kl: KlConfig = field(default_factory=KlConfig)
    entropy: EntropyConfig = field(default_factory=EntropyConfig)
    bootstrap: BootstrapConfig = field(default_factory=BootstrapConfig)
    gates: GatesConfig = field(default_factory=GatesConfig)
    correction: CorrectionConfig = field(default_factory=CorrectionConfig)

    @classmethod
    def from_recipe(cls, recipe: Recipe, stage: str) -> "UpdateConfig":
        """As the recipe has it; ``learner/coefficients.py`` says what the weights come to in a step."""
        tables = (recipe.kl, recipe.entropy, recipe.bootstrap, recipe.gates, recipe.correction)
        return cls(recipe.stage(stage), *tables)


@dataclass(frozen=True)
class LossTerm:
    """One term of a loss. Terms are added up, each times its weight."""

    name: str
    weight: float
    has_gradient: Callable[[Sample], bool]
    """Whether it can have a gradient on a sample; a sample on which no term has one is not computed."""
    denominator: Callable[[Sequence[Sample]], float]
    """What it is divided by over a minibatch; the same for each micro-batch."""
    loss: Callable[[Batch, Scores, float], Tensor]
    """A micro-batch's share of it, not weighted."""


@dataclass(frozen=True)
class Algorithm:
    """Functions that ``learner/step.py`` calls without knowing whose they are."""

    source: Literal["demonstrations", "rollouts"]
    """What a step starts from."""
    to_samples: Callable[[Sequence[Rollout], Any, MaskPolicy], list[Sample]]
    """Rollouts to samples, by the stage's table, under the declared mask policy."""
    needs_reference: Callable[[UpdateConfig], bool]
    """Whether credit or a term of the loss needs the reference's log-probabilities."""
    objective: Callable[[Any], Objective | None]
    """The policy loss by the stage's table; None where there is none."""
    critic: Callable[[Any], Literal["", "head", "separate"]]
    """Which critic, by the stage's table; "" where there is none."""
    compute_advantages: Callable[[Sequence[Sample], UpdateConfig], list[Sample]]
    """Samples with advantages, as new objects."""
    terms: Callable[[UpdateConfig], tuple[LossTerm, ...]]
    """What is minimised."""
