"""What measurements have in common: hooks into a step, and the step that they measure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from truing.config import Recipe
from truing.learner.hooks import StepHooks
from truing.learner.learner import Learner
from truing.learner.optimizer_step import OptimizerStep
from truing.models.policy import Policy
from truing.rollouts.sampler import Sampler
from truing.rollouts.step_samples import StepSamples
from truing.types.facts import Facts
from truing.types.sample import Sample
from truing.types.step_table import StepTable

AuditKind = Literal["weights", "audit", "rows", "row_gradient", "gradient"]
"""Audits have budgets by kind: ``audit_schedule.BUDGET_SHARES``."""


@dataclass
class MeasuredStep:
    """What measurements read of a step."""

    recipe: Recipe
    sampler: Sampler
    policy: Policy
    learner: Learner
    stage: str
    step: int  # of the stage
    step_index: int  # of the step, over all stages; selects weights, if there are too many to measure
    samples: StepSamples
    past: Sequence[Facts]  # of the stage's kept earlier steps, oldest first
    publication: Mapping[str, Any]  # the receipt of the sampler's weights; empty if the engine has none
    since_last: Facts  # measured since the step before
    # once the step has trained
    optimizer_steps: Sequence[OptimizerStep] = ()
    table: StepTable | None = None  # with tokens and passes, without metrics
    facts: Facts = field(default_factory=Facts)  # of the measurements before this one

    @property
    def all_samples(self) -> list[Sample]:
        """All samples, those included that are not trained."""
        return [*self.samples.samples, *self.samples.untrained]

    @property
    def recorded_samples(self) -> list[Sample]:
        """All samples of the table."""
        return self.samples.recorded(each.samples for each in self.optimizer_steps)

    @property
    def has_dropout(self) -> bool:
        """Whether the recipe declares dropout, which makes a forward random."""
        return bool(self.recipe.lora and self.recipe.lora.dropout > 0)


class Measurement(StepHooks):
    """One measurement of one step: a subclass overrides the hooks that it needs, and its docstring says what.

    It is made before the step trains. An audit has the hook ``before_optimizer_steps``, and is called where
    the schedule has its kind.
    """

    facts: ClassVar[tuple[str, ...]]
    """Keys of ``Facts`` that it gives."""

    cost: ClassVar[str]
    """What it computes or reads, in words."""

    metrics: ClassVar[tuple[str, ...]] = ()
    """Metrics that it gives."""

    audit: ClassVar[AuditKind | None] = None
    """The kind of audit that it is part of."""

    audited_tokens: int | None = None
    """Tokens that its audit computed; None: as many as the schedule supposes."""

    def __init__(self, step: MeasuredStep) -> None:
        self.step = step
        self.found: Facts = {}
        self.numbers: dict[str, float] = {}

    def before_optimizer(self) -> None:
        """Measure at the start of each ``optimizer.step()``, after clipping."""

    def after_optimizer(self) -> None:
        """Measure at the end of each ``optimizer.step()``."""

    def after_step(self) -> Facts:
        """Return the facts, once the step has trained, and leave the metrics in ``numbers``.

        What cannot be measured is absent.
        """
        return self.found
