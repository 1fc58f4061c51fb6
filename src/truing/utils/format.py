"""Numbers in sentences, and texts that a terminal shows and does not obey."""

import math


def with_count(number: int, one: str, many: str = "") -> str:
    """A number and its noun: 1 rule, 2 rules; ``many`` where it takes more than an s: tokens are."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def format_duration(seconds: float) -> str:
    """A length of time, as a guess is rounded: 8 s, 12 min, 3.2 h."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def escape_control(text: str) -> str:
    r"""The text with all that a terminal might obey escaped: an escape character becomes ``\x1b``."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
