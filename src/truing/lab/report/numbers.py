"""Numbers of a lab as text and as JSON."""

import math
from collections.abc import Mapping
from typing import Any

from truing.utils.format import format_duration


def effect_text(effect: float, low: float, high: float) -> str:
    """Return an effect with its bounds: ``+0.213 [+0.150, +0.270]``; an unknown bound is ∞."""
    if math.isnan(effect):
        return "–"
    bounds = "" if math.isnan(low) else f" [{bound_text(low)}, {bound_text(high)}]"
    return f"{effect:+.3f}{bounds}"


def bound_text(value: float) -> str:
    """Return a bound as text."""
    return f"{value:+.3f}" if math.isfinite(value) else "+∞" if value > 0 else "-∞"


def number_text(value: float) -> str:
    """Return a number as text, or a question mark if it is unknown."""
    return f"{value:.2g}" if math.isfinite(value) else "?"


def sensitivity_text(effect: float) -> str:
    """Return the smallest detectable effect as text."""
    if math.isnan(effect):
        return "has an unknown detectable effect: no noise estimate"
    return (
        "detects no effect, however large" if effect == math.inf else f"detects {number_text(effect)} or more"
    )


def minutes_text(minutes: float) -> str:
    """Return a duration as text, rounded."""
    return format_duration(minutes * 60)


def nan_to_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table with None for each number that is not finite."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in table.items()
    }
