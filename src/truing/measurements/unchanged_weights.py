"""Digests of weights that a stage must not change: the base below an adapter, and the reference."""

from collections.abc import Sequence

from truing.measurements.measurement import Measurement
from truing.models.digest import quick_sum
from truing.models.lora import frozen_weights
from truing.types.facts import Facts
from truing.types.sample import Sample


class FrozenWeights(Measurement):
    """A digest of the weights below the adapter, and the first one of the stage."""

    facts = ("frozen",)
    cost = "one sum over all weights"
    audit = "weights"

    def before_optimizer_steps(self, minibatch: Sequence[Sample]) -> None:
        """Digest the weights."""
        if self.step.recipe.lora:
            digest = quick_sum(frozen_weights(self.step.learner.model))
            first = next((past["frozen"]["declared"] for past in self.step.past if "frozen" in past), digest)
            self.found = {"frozen": {"digest": digest, "declared": first}}


class ReferenceDigest(Measurement):
    """A digest of the reference, and at every step the one of when it was made, synced or restored."""

    facts = ("reference",)
    cost = "one sum over the reference's weights; nothing in other steps"
    audit = "weights"

    def before_optimizer_steps(self, minibatch: Sequence[Sample]) -> None:
        """Digest the reference."""
        reference = self.step.learner.reference
        if reference is not None:
            digest = quick_sum(reference.weights())
            self.found = {"reference": {"digest": digest, "declared": reference.digest}}

    def after_step(self) -> Facts:
        """Return both; in a step without this audit the declared one alone."""
        reference = self.step.learner.reference
        if reference is None or self.found:
            return self.found
        return {"reference": {"declared": reference.digest}}
