"""Numbers of a lab in words, and in JSON."""

import math
from collections.abc import Mapping
from typing import Any

from truing.utils.format import format_duration


def effect_text(effect: float, low: float, high: float) -> str:
    """An effect with its bounds: ``+0.213 [+0.150, +0.270]``; a bound that is not known is ∞."""
    if math.isnan(effect):
        return "–"
    bounds = "" if math.isnan(low) else f" [{bound_text(low)}, {bound_text(high)}]"
    return f"{effect:+.3f}{bounds}"


def bound_text(value: float) -> str:
    """A bound."""
    return f"{value:+.3f}" if math.isfinite(value) else "+∞" if value > 0 else "-∞"


def number_text(value: float) -> str:
    """A number, or a question mark where nobody knows it."""
    return f"{value:.2g}" if math.isfinite(value) else "?"


def sensitivity_text(least: float) -> str:
    """The smallest effect that is seen, in words."""
    if math.isnan(least):
        return "sees nobody knows what, for nobody knows the noise"
    return "sees nothing, however large" if least == math.inf else f"sees {number_text(least)} or more"


def minutes_text(minutes: float) -> str:
    """A length of time, as a guess is rounded."""
    return format_duration(minutes * 60)


def nan_to_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table with null for each number that is not known."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in table.items()
    }
