"""What moves from step to step beside the weights: how much each term of the loss counts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from truing.algos import UpdateConfig
from truing.config import Recipe
from truing.ops.adaptive_coefficients import entropy_controller, kl_controller, linear_decay


@dataclass(frozen=True)
class LossCoefficients:
    """Weights as they stand before a step; a checkpoint holds them, and resume goes on from there."""

    kl_coef: float
    entropy_coef: float

    @classmethod
    def initial(cls, recipe: Recipe) -> "LossCoefficients":
        """As the recipe has them."""
        return cls(recipe.kl.coef, recipe.entropy.coef)

    def after_rollback(self, before: Recipe, now: Recipe) -> "LossCoefficients":
        """The same weights, less those that a guard has set anew."""
        fresh = LossCoefficients.initial(now)
        return LossCoefficients(
            fresh.kl_coef if now.kl.coef != before.kl.coef else self.kl_coef,
            fresh.entropy_coef if now.entropy.coef != before.entropy.coef else self.entropy_coef,
        )

    def setting(self, recipe: Recipe, stage: str, step: int) -> UpdateConfig:
        """What update ``step`` is computed by."""
        plan = UpdateConfig.from_recipe(recipe, stage)
        left = linear_decay(step, plan.bootstrap.steps)
        shown = {"coef": plan.bootstrap.coef * left} if left else {"steps": 0}
        return replace(
            plan,
            kl=plan.kl.model_copy(update={"coef": self.kl_coef}),
            entropy=plan.entropy.model_copy(update={"coef": self.entropy_coef}),
            bootstrap=plan.bootstrap.model_copy(update=shown),
        )

    def next_step(self, recipe: Recipe, metrics: Mapping[str, float], rollouts: int) -> "LossCoefficients":
        """The weights after a step that measured so much; what was not measured moves nothing."""
        kl, entropy = recipe.kl, recipe.entropy
        kl_coef, entropy_coef = self.kl_coef, self.entropy_coef
        if kl.target is not None and "kl_all/k3" in metrics:
            kl_coef = kl_controller(kl_coef, metrics["kl_all/k3"], kl.target, rollouts, kl.horizon)
        measured = metrics.get("entropy/contract", metrics.get("entropy/drawn"))  # where nothing was computed
        if entropy.target is not None and measured is not None:
            entropy_coef = entropy_controller(entropy_coef, measured, entropy.target, entropy.step)
        return LossCoefficients(kl_coef, entropy_coef)
