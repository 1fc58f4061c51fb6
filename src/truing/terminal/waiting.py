"""Shows on stderr how far a command is that takes longer than some seconds, and the time left."""

import time
from collections.abc import Callable

from rich.console import Console

from truing.utils.format import format_duration

FIRST, BETWEEN = 2.0, 5.0
"""Seconds before the first line, and between lines."""


class Waiting:
    """Prints lines such as ``judged 40 of 205 steps, 30 s left``; called with both counts."""

    def __init__(self, text: str, print_line: Callable[[str], None] | None = None) -> None:
        """``text`` has the places ``{done}`` and ``{total}``."""
        self._text = text
        self._print = print_line or Console(stderr=True, highlight=False, markup=False).print
        self._start = time.monotonic()
        self._next = self._start + FIRST

    def __call__(self, done: int, total: int) -> None:
        """Print a line if one is due."""
        now = time.monotonic()
        if now < self._next or not 0 < done < total:
            return
        self._next = now + BETWEEN
        left = (now - self._start) / done * (total - done)
        self._print(f"{self._text.format(done=done, total=total)}, {format_duration(left)} left")
