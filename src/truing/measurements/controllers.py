"""The settings by which weights of loss terms change after a step."""

from truing.measurements.measurement import Measurement
from truing.types.facts import Facts


class Controllers(Measurement):
    """Weights, targets and steps of the KL and the entropy in this step's recipe.

    A fork or a rollback may change them: the weight of the next step follows from these.
    """

    facts = ("controllers",)
    cost = "nothing"

    def after_step(self) -> Facts:
        """Return them, without those that the recipe does not give."""
        kl, entropy = self.step.recipe.kl, self.step.recipe.entropy
        known = {
            "kl_coef": kl.coef,
            "kl_target": kl.target,
            "kl_horizon": kl.horizon,
            "entropy_coef": entropy.coef,
            "entropy_target": entropy.target,
            "entropy_step": entropy.step,
        }
        return {"controllers": {name: float(x) for name, x in known.items() if x is not None}}
