"""The number that a response ends with, and its comparison with the right one."""

import re
from collections.abc import Iterator

from truing.errors import DataError
from truing.rewards.numbers import Number, read_number, same_number
from truing.rewards.text_match import without_reasoning

MAX_END_CHARS = 2000
"""Characters of a response's end in which its number is looked for."""

_CALCULATION = re.compile(r"<<[^<>\n]*>>")
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
_MARKED = re.compile(
    r"####\s*(?P<hashes>(?:(?!####)[^\n])+)"
    r"|(?:^|\n)[*\s]*A[*]*\s*:(?P<letter>[^\n]+)"
    r"|\banswer\b[*]*\s*(?:is\b|=|:)[*:]*(?P<words>[^\n]+)",
    re.IGNORECASE,
)
_TAG = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL)
_SENTENCE = re.compile(r"[.!?](?:\s|$)|;|\n")
_EQUATION = re.compile(r".*(?<![!<>≠≈~])=([^=]+)", re.DOTALL)
_TOKEN = re.compile(
    r"(?:\b(?:minus|negative)\s+)?[^\s]*\d[^\s]*"
    r"(?:\s*%|\s+(?:per\s?cent|hundred|thousand|million|billion|trillion)\b)?",
    re.IGNORECASE,
)
_OPEN = re.compile(
    r"\b(?:not|isn't|wasn't|than|wrong|incorrect|hal(?:f|ves)|quarters?|thirds?|dozens?)\b"
    r"|\d\s+(?:(?:four|fif|six|seven|eigh|nin|ten|hundred|thousand|million)ths?|below)\b"
    r"|\b(?:at (?:least|most)|up to|over|under|below|above)\s+\W?\d",
    re.IGNORECASE,
)
"""Words beside a number that deny it, make it another one, or a bound."""


def number_match(response: str, answer: str, tolerance: float = 0.0) -> float:
    r"""1.0 where the number that a response ends with is the right one, else 0.0.

    Args:
        response: What was said; a thought up to ``</think>`` is no part of it.
        answer: The right number, and nothing else but a unit.
        tolerance: So far from it, relative to its size, the number may be; 0 is exactly equal.

    Raises:
        DataError: The right answer is no number.

    >>> number_match("3 dozen is 36 eggs.\n#### 36", "36"), number_match("-5", "5")
    (1.0, 0.0)
    """
    wanted = read_number(answer)
    if wanted is None:
        raise DataError(
            "the right answer is no number", got=repr(answer), expected="one such as 1,234.5 or 3/4"
        )
    said = final_number(response)
    return float(said is not None and same_number(said, wanted, tolerance))


def final_number(response: str) -> Number | None:
    r"""The number that a response gives as its answer; None where it gives none, or leaves it open.

    In this order: what its last mark says (``\boxed{…}``, ``<answer>…</answer>``, ``#### …``, ``A: …``, "the
    answer is …"), its last line where that is a number or an equation, the one number that it holds.
    Calculations such as ``<<3*12=36>>`` are left out. Marks in one line that differ leave it open.
    """
    text = _end(_CALCULATION.sub("", without_reasoning(response)).strip())
    marked = list(_marked(text))
    if marked:
        line = text.rfind("\n", 0, marked[-1][0])
        last = [_only(said) for start, said in marked if start > line]
        return last[-1] if all(number == last[-1] for number in last) else None
    return _read(text.rpartition("\n")[2]) or _held(text)


def _end(text: str) -> str:
    """The end of a text, from a blank on: no number is cut in two, and none is looked for through a book."""
    return text if len(text) <= MAX_END_CHARS else text[-MAX_END_CHARS:].partition(" ")[2]


def _marked(text: str) -> Iterator[tuple[int, str]]:
    """Where a text marks its answer, and what it says there, in order; boxes and tags go before words."""
    exact = [(found.start(), found[1]) for pattern in (_BOXED, _TAG) for found in pattern.finditer(text)]
    if exact:
        yield from sorted(exact)
        return
    for found in _MARKED.finditer(text):
        yield found.start(found.lastgroup or 0), found[found.lastgroup or 0]


def _only(text: str) -> Number | None:
    """The number that a marked text or its first sentence is, or the one that it holds."""
    return _read(text) or _read(_SENTENCE.split(text.strip(), maxsplit=1)[0]) or _held(text)


def _read(text: str) -> Number | None:
    """The number that a text is, or that an equation ends with."""
    ends = _EQUATION.fullmatch(text)
    return read_number(text) or (read_number(ends[1]) if ends else None)


def _held(text: str) -> Number | None:
    """The one number that a text holds and does not deny, in words that are no numbers."""
    if _OPEN.search(text):
        return None
    tokens = {token.strip("*_`,;:!?.") for token in _TOKEN.findall(text)}
    read = [read_number(token) for token in tokens]
    return read[0] if len(read) == 1 else None
