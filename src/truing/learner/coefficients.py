"""Coefficients of the loss terms that change from step to step: KL, entropy and the supervised term."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from truing.algos import StepConfig
from truing.config import Recipe
from truing.ops.adaptive_coefficients import entropy_controller, kl_controller, linear_decay


@dataclass(frozen=True)
class LossCoefficients:
    """KL and entropy coefficients before a step; checkpoints store them."""

    kl_coef: float
    entropy_coef: float

    @classmethod
    def initial(cls, recipe: Recipe) -> "LossCoefficients":
        """Return the recipe's coefficients."""
        return cls(recipe.kl.coef, recipe.entropy.coef)

    def under(self, before: Recipe, after: Recipe) -> "LossCoefficients":
        """Return these coefficients, with those that a changed recipe sets otherwise taken from it."""
        initial = LossCoefficients.initial(after)
        return LossCoefficients(
            initial.kl_coef if after.kl.coef != before.kl.coef else self.kl_coef,
            initial.entropy_coef if after.entropy.coef != before.entropy.coef else self.entropy_coef,
        )

    def setting(self, recipe: Recipe, stage: str, step: int) -> StepConfig:
        """Return the stage's algorithm setting at ``step``, with the current coefficients."""
        setting = StepConfig.from_recipe(recipe, stage)
        decay = linear_decay(step, setting.bootstrap.steps)
        bootstrap = {"coef": setting.bootstrap.coef * decay} if decay else {"steps": 0}
        return replace(
            setting,
            kl=setting.kl.model_copy(update={"coef": self.kl_coef}),
            entropy=setting.entropy.model_copy(update={"coef": self.entropy_coef}),
            bootstrap=setting.bootstrap.model_copy(update=bootstrap),
        )

    def next_step(self, recipe: Recipe, metrics: Mapping[str, float], rollouts: int) -> "LossCoefficients":
        """Return the coefficients after a step with these metrics; a missing metric changes nothing."""
        kl, entropy = recipe.kl, recipe.entropy
        kl_coef, entropy_coef = self.kl_coef, self.entropy_coef
        if kl.target is not None and "kl_all/k3" in metrics:
            kl_coef = kl_controller(kl_coef, metrics["kl_all/k3"], kl.target, rollouts, kl.horizon)
        # a step without a forward has only the sampler's estimate
        measured_entropy = metrics.get("entropy/mean", metrics.get("entropy/sampled"))
        if entropy.target is not None and measured_entropy is not None:
            entropy_coef = entropy_controller(entropy_coef, measured_entropy, entropy.target, entropy.step)
        return LossCoefficients(kl_coef, entropy_coef)
