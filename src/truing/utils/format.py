"""Formats numbers, escapes control characters, and suggests the name that was meant."""

import difflib
import math
import re
from collections.abc import Iterable


def with_count(number: int, singular: str, plural: str = "") -> str:
    """Return a number and its noun: 1 rule, 2 rules; ``plural`` is an irregular plural."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def format_duration(seconds: float) -> str:
    """Return a duration, rounded: 8 s, 12 min, 3.2 h."""
    if not math.isfinite(seconds):
        return "?"
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def first_line(error: Exception) -> str:
    """Return the first line of a library's error; the rest is advice on its own options."""
    return str(error).strip().partition("\n")[0]


def summary_of_error(text: str) -> str:
    """Return an error in a line: its first line, the last of what it got, which says why, and the remedy."""
    told, *parts = re.split(r"\n  (?=expected: |remedy: )", text.strip())
    first, *got = told.splitlines()
    remedies = [part.partition("\n")[0] for part in parts if part.startswith("remedy: ")]
    return " … ".join([first, *got[-1:], *remedies[-1:]])


def text_of_error(error: BaseException) -> str:
    """Return the text of an error of others' code, which may have none: ``__str__`` may fail, too."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 — of a method of others
        return f"(an error without a text: str() raised {type(failure).__name__})"


def shorten(text: str, limit: int = 80) -> str:
    """Return a text, shortened to ``limit`` characters."""
    return text if len(text) <= limit else text[:limit] + "…"


def escape_control(text: str) -> str:
    r"""Return the text with every control character escaped: an escape character becomes ``\x1b``."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def escape_lines(text: str) -> str:
    """Return the text with every control character except newlines escaped."""
    return "\n".join(map(escape_control, text.split("\n")))


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Return a remedy that names the nearest valid name; empty if none is near."""
    nearest = nearest_name(name, valid)
    return f"did you mean {nearest!r}?" if nearest else ""


def nearest_name(name: str, valid: Iterable[str]) -> str:
    """Return the nearest valid name; empty if none is near."""
    return next(iter(difflib.get_close_matches(name, list(valid), n=1, cutoff=0.5)), "")
