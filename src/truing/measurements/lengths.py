"""Lengths of answers and demonstrations."""

from truing.doctor.facts.answer_lengths import answer_lengths
from truing.measurements.measurement import Measurement
from truing.types.facts import Facts


class AnswerLengths(Measurement):
    """Lengths of answers and demonstrations, by task family."""

    facts = ("lengths",)
    cost = "nothing"

    def after_step(self) -> Facts:
        """Return the lengths."""
        samples = self.step.recorded_samples
        return {"lengths": answer_lengths((sample.family, sample.origin) for sample in samples)}
