"""The tolerance between two correct forwards of the same tokens."""

from collections.abc import Mapping
from typing import Any

from truing.doctor.evidence import Step

ROUNDING_MULTIPLES, MIN_TOLERANCE = 40, 5e-5
"""Multiples of the measured difference, for few tokens; and nats of float32 rounding for any number: a flash
attention whose exponential has 20 bits is off by 1e-5, and a softmax in another order by 5e-7."""


OFTEN, LITTLE = 20, 5e-6
"""The same for the median: random errors, or a few wrong rows, do not move it. For correct forwards it is
a last digit of a log-probability, 5e-7, even if flash attention is off by 1e-5 in some rows."""

FEW = 8
"""The fewest tokens for a median."""


def measured_rounding(facts: Mapping[str, Any]) -> float | None:
    """Return the difference of a plain forward from itself in another shape, nats; None if not measured.

    It contains no other row and no function of the trainer, so that it excludes their faults.
    """
    return facts.get("null", {}).get("rounding")


ENGINE_MULTIPLES = 5
"""Multiples of the engine's difference on a publication's fixed rows, some hundred tokens, for a step's."""


def engine_tolerance(facts: Mapping[str, Any]) -> tuple[float, float]:
    """Return the tolerance of one token and of the median between another engine and the trainer, nats.

    Both are measured at the publication, with weights that are proven equal; 0 for the trainer's own engine.
    """
    rows = facts.get("publication", {}).get("rows", {})
    return ENGINE_MULTIPLES * rows.get("largest", 0.0), ENGINE_MULTIPLES * rows.get("median", 0.0)


def stage_rounding(step: Step) -> float | None:
    """Return the largest measurement of the stage so far."""
    facts = [*(past.facts for past in step.past_of_stage), step.facts]
    return max(
        (rounding for each in facts if (rounding := measured_rounding(each)) is not None), default=None
    )


EXACT = 1e-3
"""Nats, the tolerance of a publication in float32."""


def is_exact(facts: Mapping[str, Any]) -> bool:
    """Return whether a dense engine's publication was proven in float32."""
    receipt = facts.get("publication", {})
    dense = "experts" not in receipt.get("layers", {})
    return dense and receipt.get("rows", {}).get("tolerance") == EXACT


def coarse_tolerance(step: Step) -> float | None:
    """Return the nats that rounding explains in another precision beside a dense engine; None if unknown.

    With top-k, top-p or min-p rounding decides which ids are possible, and a bound is not known.
    """
    receipt, rounding = step.facts.get("publication", {}), stage_rounding(step)
    turns = receipt.get("turns", {})
    if "experts" in receipt.get("layers", {}) or turns.get("truncated", True) or rounding is None:
        return None
    engine = max(receipt["rows"]["largest"], turns["largest"])
    return max(ROUNDING_MULTIPLES * rounding, ENGINE_MULTIPLES * engine)


def tolerance(rounding: float | None, itself: float | None, floor: float) -> float | None:
    """Return the tolerance, nats; None without a measurement.

    Args:
        rounding: of a plain forward, nats.
        itself: the trainer's difference from itself, nats. A fault may be part of it.
        floor: smallest tolerance for a known ``itself`` alone, nats.
    """
    if rounding is not None:
        return max(MIN_TOLERANCE, ROUNDING_MULTIPLES * rounding)
    return None if itself is None else max(floor, ROUNDING_MULTIPLES * itself)


EFFECT_MULTIPLES = 20
"""Multiples of the largest effect of random rounding, for the effect of a weight without a gradient."""


def least_effect(step: Step, missing: Mapping[str, Any], floor: float) -> float:
    """Return the effect of a weight without a gradient beyond rounding, nats per unit of token gradient.

    In float32 it follows from the difference of a plain forward from itself. In another precision the effect
    of random rounding on the same sum is measured: over many tokens rounding cancels.
    """
    if "rounding" in missing:
        return max(floor, EFFECT_MULTIPLES * missing["rounding"])
    return tolerance(stage_rounding(step), None, floor) or floor


def typical(rounding: float | None, tokens: int) -> float | None:
    """Return the tolerance of the median, nats; None without measured rounding or enough tokens."""
    return None if rounding is None or tokens < FEW else max(LITTLE, OFTEN * rounding)
