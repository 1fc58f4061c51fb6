"""The tolerance between two correct forwards of the same tokens."""

import math
from collections.abc import Mapping
from typing import Any

from truing.doctor.evidence import Step

MIN_TOLERANCE = 5e-5
"""Nats that random rounding does not show: a flash attention whose exponential has 20 bits is off by 1e-5,
and a softmax in another order by 5e-7."""

DEVIATIONS = 5
"""Multiples of the largest of n normal errors. In SmolLM2-135M the largest error of 768 tokens of sampler or
trainer is 0.5 to 0.8 of that (`dev/measure/rounding.py`)."""

ITSELF_MULTIPLES = 40
"""Multiples of the trainer's largest difference from itself, which may be that of few tokens."""

OFTEN, LITTLE = 2, 5e-6
"""The same for the median: random errors, or a few wrong rows, do not move it. For correct forwards it is 0.2
of the rounding, and a last digit of a log-probability, 5e-7, even if flash attention is off in some rows."""

FEW = 8
"""The fewest tokens for a median."""

PROOF_MULTIPLES, ELSEWHERE_MULTIPLES = 20, 100
"""Multiples of measured random rounding that prove a difference in another precision than float32, on a CPU
and on other devices: healthy runs have been compared on CPUs, and no order of a sum rounds a hundred times as
much as another."""


def computes_in_float32(device: str) -> bool:
    """Return whether a forward on record computed in float32 throughout, as "cpu" and "cuda" say.

    "cuda, torch.bfloat16" names another precision, as "cuda, products rounded to 0.001" does (TF32).
    """
    return "," not in device


def proof_multiples(device: str) -> float:
    """Return the multiples of measured random rounding on a device that prove a difference."""
    return PROOF_MULTIPLES if device.startswith("cpu") else ELSEWHERE_MULTIPLES


def measured_rounding(facts: Mapping[str, Any]) -> float | None:
    """Return the difference of a plain forward from itself under random rounding, nats; None if not measured.

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


COARSE_MULTIPLES = 40
"""Multiples of random rounding in another precision than float32, where it also decides between experts."""


def coarse_tolerance(step: Step) -> float | None:
    """Return the nats that rounding explains in another precision beside a dense engine; None if unknown.

    With top-k, top-p or min-p rounding decides which ids are possible, and a bound is not known.
    """
    receipt, rounding = step.facts.get("publication", {}), stage_rounding(step)
    turns = receipt.get("turns", {})
    if "experts" in receipt.get("layers", {}) or turns.get("truncated", True) or rounding is None:
        return None
    engine = max(receipt["rows"]["largest"], turns["largest"])
    return max(COARSE_MULTIPLES * rounding, ENGINE_MULTIPLES * engine)


def tolerance(rounding: float | None, itself: float | None, floor: float, tokens: int) -> float | None:
    """Return the tolerance of the largest of n tokens' differences, nats; None without a measurement.

    Args:
        rounding: of a plain forward, nats: a standard deviation of a token's error.
        itself: the trainer's difference from itself, nats. A fault may be part of it.
        floor: smallest tolerance for a known ``itself`` alone, nats.
        tokens: n.
    """
    if rounding is not None:
        largest = math.sqrt(2 * math.log(max(tokens, 2)))  # of n standard normal numbers
        return max(MIN_TOLERANCE, DEVIATIONS * largest * rounding)
    return None if itself is None else max(floor, ITSELF_MULTIPLES * itself)


EFFECT_MULTIPLES, EFFECT_DEVIATIONS = 20, 40
"""Multiples of the largest effect of random rounding, for the effect of a weight without a gradient; and of a
token's rounding in float32."""


def least_effect(step: Step, missing: Mapping[str, Any], floor: float) -> float:
    """Return the effect of a weight without a gradient beyond rounding, nats per unit of token gradient.

    The effect of random rounding on the same sum, if it was measured: over many tokens rounding cancels.
    Else, in float32, it follows from the difference of a plain forward from itself.
    """
    if "rounding" in missing:
        return max(floor, EFFECT_MULTIPLES * missing["rounding"])
    rounding = stage_rounding(step)
    return floor if rounding is None else max(MIN_TOLERANCE, EFFECT_DEVIATIONS * rounding)


def typical(rounding: float | None, tokens: int) -> float | None:
    """Return the tolerance of the median, nats; None without measured rounding or enough tokens."""
    return None if rounding is None or tokens < FEW else max(LITTLE, OFTEN * rounding)
