"""What the engine said of the weights that sampled a step."""

from truing.measurements.measurement import Measurement
from truing.types.batch_facts import Publication
from truing.types.facts import Facts


class PublishedWeights(Measurement):
    """The receipt of the weights that sampled the step, and how many steps old they are."""

    facts = ("publication",)
    cost = "nothing here; the engine proves each publication"

    def after_step(self) -> Facts:
        """Return the receipt; nothing if the engine has none."""
        receipt = self.step.publication
        if not receipt:
            return {}
        return {"publication": Publication(**receipt, behind=self.step.step_index - receipt["version"])}
