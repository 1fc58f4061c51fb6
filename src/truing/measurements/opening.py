"""The template's last ids before demonstrations."""

from collections.abc import Sequence

from truing.measurements.measurement import Measurement
from truing.types.facts import Facts
from truing.types.sample import Sample
from truing.types.token import Origin

OPENING_TOKENS = 4
"""Recorded template tokens before a demonstration: most templates open a turn with three."""


class DemonstrationOpening(Measurement):
    """The template's last ids before the first demonstration; prompts of later stages end in them."""

    facts = ("opening",)
    cost = "nothing"

    def after_step(self) -> Facts:
        """Return the ids; nothing without a demonstration."""
        opening = _opening(self.step.recorded_samples)
        return {"opening": {"demonstrated": opening}} if opening else {}


def _opening(samples: Sequence[Sample]) -> list[int]:
    """Return the template's last ids before the first demonstration; none if there is no demonstration."""
    for sample in samples:
        start = sample.turns[0].start if sample.turns else 0
        if not 0 < start < len(sample):  # a rollout may fail before its first token
            continue
        if sample.origin[start] == Origin.DEMO and sample.origin[start - 1] == Origin.TEMPLATE:
            before = (sample.origin[:start] != Origin.TEMPLATE).nonzero()
            first = int(before[-1]) + 1 if len(before) else 0
            return sample.token_ids[max(first, start - OPENING_TOKENS) : start].tolist()
    return []
