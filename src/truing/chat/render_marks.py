"""Marks in a text for a chat template: positions at which the rendered text is cut for encoding."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

BREAK, EDGE, LITERAL = "\ufdd0", "\ufdd1", "\ufdd2"
"""Marks in data: a piece ends here; a piece ends here where a control token would reach across; the next
character is one of these three, and no mark. Unicode keeps all three for a program's own use."""

MARKS = re.compile(f"[{BREAK}{EDGE}{LITERAL}]")
MARK_PATTERN = re.compile(f"{LITERAL}(.)|([{BREAK}{EDGE}])")


@dataclass(frozen=True)
class Rendering:
    """A rendered text, and the positions at which it is cut for encoding."""

    text: str
    cuts: tuple[int, ...] = ()

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Return the spans of the text from ``start`` to ``end`` to encode separately."""
        edges = [start, *(cut for cut in self.cuts if start < cut < end), end]
        yield from ((a, b) for a, b in pairwise(edges) if a < b)

    def find(self, token: str, start: int) -> int:
        """Return the position of a token that the template wrote, from ``start`` on; -1 without one."""
        at = self.text.find(token, start)
        while at >= 0 and any(at < cut < at + len(token) for cut in self.cuts):
            at = self.text.find(token, at + 1)
        return at


def with_marks(text: str, marks: Mapping[int, str]) -> str:
    """Return a text with a mark before each of those characters; its own marks stay text."""
    edges = [0, *sorted(marks), len(text)]
    parts = (MARKS.sub(rf"{LITERAL}\g<0>", text[a:b]) for a, b in pairwise(edges))
    return "".join(marks.get(a, "") + part for a, part in zip(edges, parts, strict=False))


def without_marks(marked: str) -> tuple[str, list[tuple[int, str]]]:
    """Return the text without marks, and each mark with the position of the next character."""
    marks, removed = list[tuple[int, str]](), 0
    for match in MARK_PATTERN.finditer(marked):
        marks += [(match.start() - removed, match[2])] if match[2] else []
        removed += 1  # each match has one character that is not text
    return (MARK_PATTERN.sub(r"\1", marked) if removed else marked), marks
