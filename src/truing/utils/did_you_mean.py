"""Names that somebody mistyped."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """A remedy that names the nearest valid name; empty where none is near."""
    near = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else ""
