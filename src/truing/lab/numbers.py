"""Numbers of a lab in words, and in JSON."""

import math
from collections.abc import Mapping
from typing import Any

from truing.words import duration


def effect_text(effect: float, low: float, high: float) -> str:
    """An effect with its bounds: ``+0.213 [+0.150, +0.270]``; a bound that is not known is ∞."""
    return "–" if math.isnan(effect) else f"{effect:+.3f} [{bound_text(low)}, {bound_text(high)}]"


def bound_text(value: float) -> str:
    """A bound."""
    return f"{value:+.3f}" if math.isfinite(value) else "+∞" if value > 0 else "-∞"


def number_text(value: float) -> str:
    """A number, or a question mark where nobody knows it."""
    return f"{value:.2g}" if math.isfinite(value) else "?"


def minutes_text(minutes: float) -> str:
    """A length of time, as a guess is rounded."""
    return duration(minutes * 60)


def finite(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table with null for each number that is not known."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in table.items()
    }
