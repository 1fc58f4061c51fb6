"""How a run came to an end that is not its own."""

import traceback
from typing import Any

from truing.errors import GuardError, TruingError

LINES, CHARACTERS = 20, 4000
"""Of a traceback or a message, at most so much is kept; of a traceback the end, where the error is."""


def exit_facts(error: BaseException) -> dict[str, Any]:
    """What an error or Ctrl-C says of the run that it stops, as the event ``stopped`` has it."""
    return {
        "reason": getattr(error, "what", "") or type(error).__name__,
        "resumable": not isinstance(error, GuardError),  # what was given up on fails again where it failed
        "error": type(error).__name__,
        "message": str(error)[:CHARACTERS],
        "traceback": _traceback(error),
    }


def _traceback(error: BaseException) -> str:
    """The last lines of where it happened; of an error raised on purpose, of its cause; "" where none is."""
    source = error.__cause__ if isinstance(error, TruingError) else error
    if source is None or isinstance(source, KeyboardInterrupt):
        return ""
    lines = "".join(traceback.format_exception(source)).splitlines()
    return "\n".join(lines[-LINES:])[-CHARACTERS:]
