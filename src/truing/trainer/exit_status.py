"""Facts of the event ``stopped``: why an error or Ctrl-C ended a run."""

import traceback
from typing import Any

from truing.errors import GuardError, TruingError, redact

LINES, CHARACTERS = 20, 4000
"""Kept of a traceback (its end), and of a message."""


def exit_facts(error: BaseException) -> dict[str, Any]:
    """Return the facts of the event ``stopped``."""
    return {
        "reason": getattr(error, "what", "") or type(error).__name__,
        "resumable": not isinstance(error, GuardError),  # the guard gave up: a resumed run would fail again
        "error": type(error).__name__,
        "message": redact(str(error))[:CHARACTERS],
        "traceback": _traceback(error),
    }


def _traceback(error: BaseException) -> str:
    """Return the last lines of the traceback; of a ``TruingError`` that of its cause; "" if there is none."""
    source = error.__cause__ if isinstance(error, TruingError) else error
    if source is None or isinstance(source, KeyboardInterrupt):
        return ""
    lines = redact("".join(traceback.format_exception(source))).splitlines()
    return "\n".join(lines[-LINES:])[-CHARACTERS:]
