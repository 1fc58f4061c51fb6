"""Reads the final number of a response, and compares it with the right one."""

import re
from collections.abc import Iterator

from truing.errors import DataError
from truing.rewards.numbers import Number, read_number, same_number
from truing.rewards.text_match import without_reasoning

MAX_END_CHARS = 2000
"""Characters at a response's end that are searched for its number."""

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
"""Words near a number that negate it, change it, or make it a bound."""
_FORMULA = re.compile(
    r"\\(?:sqrt|pi|theta|log|ln|lg|exp|sin|cos|tan|pm|mp|leq?|geq?|lt|gt|neq?|times|cdot|div|p?mod|infty|binom"
    r"|choose|sum|prod|int|[dt]?frac)(?![A-Za-z])"
    r"|[√π±≤≥≠∞∑∫^]|(?<![\w=<>/\"'-])[<>]\s*[-+$]?\d"
    r"|(?<![\w'’\\</])[b-zB-HJ-Z]\s*[-+*/<>−–×÷]\s*[$]?\d"
    r"|\d\s*[-+*/−–×÷]\s*[b-zB-HJ-Z](?![\w'’])|\d\s*(?:times\s+)?[xyznei](?![\w'’])"
    r"|\d\s+(?:squared|cubed|factorial|sin|cos|tan|log|ln|exp|(?:\\text\{\s*)?or\s+(?:more|less|fewer))\b"
    r"|\b(?:twice|double|triple|(?:root|multiple|power)\s+of|divisible\s+by)\s+\W?\d"
)
"""Signs of a formula, of which a number in it is a part: $\\sqrt 5$, $x - 5$, $5 \\pi$, 5 squared."""


def number_match(response: str, answer: str, tolerance: float = 0.0) -> float:
    r"""Return 1.0 if the final number of a response is the right one, else 0.0.

    Args:
        response: The policy's text; reasoning up to ``</think>`` is ignored.
        answer: The right number, with at most a unit.
        tolerance: Largest relative difference; 0 requires exact equality.

    Raises:
        DataError: The right answer is not a number.

    >>> number_match("3 dozen is 36 eggs.\n#### 36", "36"), number_match("-5", "5")
    (1.0, 0.0)
    """
    expected = read_number(answer)
    if expected is None:
        raise DataError(
            "the right answer is not a number", got=repr(answer), expected="one such as 1,234.5 or 3/4"
        )
    number = final_number(response)
    return float(number is not None and same_number(number, expected, tolerance))


def final_number(response: str) -> Number | None:
    r"""Return the number that a response gives as its answer; None if there is none, or it is ambiguous.

    In this order: the last marked answer (``\boxed{…}``, ``<answer>…</answer>``, ``#### …``, ``A: …``, "the
    answer is …"), the last line if it is a number or an equation, the only number in the response.
    Calculations such as ``<<3*12=36>>`` are ignored. Different marked answers in one line are ambiguous.
    """
    text = _end(_CALCULATION.sub("", without_reasoning(response)).strip())
    marked = list(_marked(text))
    if marked:
        line = text.rfind("\n", 0, marked[-1][0])
        last = [_only(answer) for start, answer in marked if start > line]
        return last[-1] if all(number == last[-1] for number in last) else None
    return _read(text.rpartition("\n")[2]) or _contained_number(text)


def _end(text: str) -> str:
    """Return the end of a long text, from a space on, so that no number is split."""
    return text if len(text) <= MAX_END_CHARS else text[-MAX_END_CHARS:].partition(" ")[2]


def _marked(text: str) -> Iterator[tuple[int, str]]:
    """Yield the positions and texts of marked answers, in order; boxes and tags precede words."""
    exact = [(match.start(), match[1]) for pattern in (_BOXED, _TAG) for match in pattern.finditer(text)]
    if exact:
        yield from sorted(exact)
        return
    for match in _MARKED.finditer(text):
        yield match.start(match.lastgroup or 0), match[match.lastgroup or 0]


def _only(text: str) -> Number | None:
    """Return the number that a marked text or its first sentence is, or the only one in it."""
    return _read(text) or _read(_SENTENCE.split(text.strip(), maxsplit=1)[0]) or _contained_number(text)


def _read(text: str) -> Number | None:
    """Return the number that a text is, or the right side of an equation."""
    ends = _EQUATION.fullmatch(text)
    return read_number(text) or (read_number(ends[1]) if ends else None)


def _contained_number(text: str) -> Number | None:
    """Return the only number in a text; None if a word negates or changes it, or it is part of a formula."""
    if _OPEN.search(text) or _FORMULA.search(text):
        return None
    tokens = {token.strip("*_`,;:!?.") for token in _TOKEN.findall(text)}
    read = [read_number(token) for token in tokens]
    return read[0] if len(read) == 1 else None
