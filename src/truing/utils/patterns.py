"""Regular expressions that come from data: a search that takes too long is an error.

Python's ``re`` has no limit: ``(a+)+$`` takes longer than the age of the universe for 100 letters, and no
other thread runs meanwhile. ``regex`` understands the same patterns, and takes a timeout.
"""

import regex

SECONDS = 1.0
"""Time limit of a search; patterns of answers and arguments take microseconds."""

PatternError = regex.error
"""Raised for a text that is not a regular expression."""


class Pattern:
    """A compiled pattern whose searches end."""

    def __init__(self, pattern: str) -> None:
        """Compile a pattern.

        Raises:
            PatternError: it is not a regular expression.
        """
        try:
            self._compiled = regex.compile(pattern)
        except (RecursionError, OverflowError, MemoryError) as error:
            raise PatternError(f"it cannot be compiled: {type(error).__name__}") from error
        self.groups = self._compiled.groups

    def find_all(self, text: str) -> "list[regex.Match[str]]":
        """Return all matches in a text.

        Raises:
            TimeoutError: the search takes longer than SECONDS.
        """
        return list(self._compiled.finditer(text, timeout=SECONDS))

    def matches(self, text: str) -> bool:
        """Return whether a text contains a match; raises TimeoutError as ``find_all``."""
        return self._compiled.search(text, timeout=SECONDS) is not None

    def matches_all_of(self, text: str) -> bool:
        """Return whether all of a text is a match; raises TimeoutError as ``find_all``."""
        return self._compiled.fullmatch(text, timeout=SECONDS) is not None
