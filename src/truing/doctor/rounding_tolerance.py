"""What two sound forwards of the same tokens may differ by."""

from collections.abc import Mapping
from typing import Any

from truing.doctor.evidence import Step

ROUNDING_MULTIPLES, MIN_TOLERANCE = 40, 5e-5
"""Multiples of what was measured, of a few tokens alone; and nats that float32 leaves of any number: a flash
attention whose exponential has 20 bits is off by 1e-5 where softmax in another order rounds by 5e-7."""


OFTEN, LITTLE = 20, 5e-6
"""The same of the median: what is off by chance, or in a few rows, does not move it. Of sound forwards it is
a last digit of a log-probability, 5e-7, also where flash attention is off by 1e-5 in some rows."""

FEW = 8
"""Tokens that have no median to speak of."""


def measured_rounding(facts: Mapping[str, Any]) -> float | None:
    """Nats by which a plain forward of rows differs from itself in another shape; None where nobody asked.

    No other row is in it, and none of the trainer's own functions: no fault of theirs is part of it.
    """
    return facts.get("null", {}).get("rounding")


def stage_rounding(step: Step) -> float | None:
    """The largest that was measured in the stage so far."""
    facts = [*(past.facts for past in step.past_of_stage), step.facts]
    return max((found for each in facts if (found := measured_rounding(each)) is not None), default=None)


def tolerance(rounding: float | None, itself: float | None, floor: float) -> float | None:
    """Nats; None where nothing was measured.

    Args:
        rounding: of a plain forward, nats.
        itself: how far the trainer is from itself, nats. A fault may be part of it.
        floor: nats that are allowed where only that is known.
    """
    if rounding is not None:
        return max(MIN_TOLERANCE, ROUNDING_MULTIPLES * rounding)
    return None if itself is None else max(floor, ROUNDING_MULTIPLES * itself)


def typical(rounding: float | None, tokens: int) -> float | None:
    """Nats that the median over tokens may be; None where rounding was not measured, or there are too few."""
    return None if rounding is None or tokens < FEW else max(LITTLE, OFTEN * rounding)
