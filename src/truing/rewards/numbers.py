r"""Numbers as people and models write them, read exactly and compared as numbers.

Read are signs, currencies, thousands (1,234; 1 234 where that is all), decimals (1.5; 1,5 and 1.234,5 where
there is no other reading), exponents (1.5e3, 6 \times 10^{23}), fractions (3/4, 3 1/2, ½, \frac{3}{4}),
percent, hundred to trillion, and the words of a unit behind the number. A comma before three digits separates
thousands; a point alone never does. Ranges, dates, times, sums and codes such as 007 are no numbers.
"""

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

MOST_DIGITS = 400
"""Of a number or its power of ten; more is no answer, and would take time and memory without end."""

LONGEST = 1000
"""Characters of a text that could be a number."""

SCALES = {
    "hundred": 2,
    "thousand": 3,
    "k": 3,
    "K": 3,
    "million": 6,
    "M": 6,
    "billion": 9,
    "bn": 9,
    "trillion": 12,
}
"""Powers of ten that are written as words or letters."""

CURRENCIES = {"$": "dollar", "€": "euro", "£": "pound", "¥": "yen", "₹": "rupee"}

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_REWRITTEN = (
    (r"[\u2212\ufe63\uff0d]", "-"),
    (r"(?<=\d)(?:\{,\}|\\,|[\u00a0\u2009\u202f'_])(?=\d{3}(?!\d))", ","),  # thousands
    (r"(?<=\d)(?=[¼-¾⅐-⅞])", " "),  # 3½ is 3 1/2
    (r"\\(?:left|right)\b|\\[()\[\]]|\\(?=[%$])", ""),
    (r"\s*\\[dtc]?frac\s*\{?\s*(\d+)\s*\}?\s*\{?\s*(\d+)\s*\}?", r" \1/\2"),
    (r"\s*(?:\\times|\\cdot|×|\*|x)\s*10\s*(?:\^|\*\*)\s*[{(]?([+-]?\d+)[})]?", r"e\1"),
    (r"[*`]+", ""),
    (r"(?i)\b(?:minus|negative)\s+(?=[$€£.\d])", "-"),
)
"""What is written in several ways → the way that is read."""

_WRAPPED = re.compile(r"\\(?:boxed|text|textbf|mathbf|mathrm)\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_BRACKETED = re.compile(r"\$(.*)\$|\((.*)\)|\[(.*)\]|\"(.*)\"|“(.*)”|'(.*)'", re.DOTALL)
_MONEY = "[$€£¥₹]"
_DECIMAL = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(
    rf"#?(?P<sign>[+-]?)\s*(?P<money>{_MONEY}?)\s*(?P<inner>[+-]?)"
    rf"(?:(?:(?P<whole>\d+)\s+)?(?P<over>\d+)\s*/\s*(?P<under>\d+)"
    rf"|(?P<decimal>{_DECIMAL})(?:e(?P<power>[+-]?\d+))?)(?![\d.,]*\d|\s*/\s*\d)"
    rf"(?:\s*(?P<scale>hundred|thousand|million|billion|trillion|(?<=\d)(?:k|K|M|bn))\b)?"
    r"\s*(?P<percent>%|per\s?cent\b)?(?P<unit>(?:[^\W\d_]|[°./²³\s]|(?<=[^\W\d_])\^[23])*)",
    re.IGNORECASE,
)
_SPACED = re.compile(rf"((?:[+-]|{_MONEY}|\s)*\d{{1,3}})((?: \d{{3}})+)(?!\d)(?=\D|$)")
_COMMA = re.compile(r"(\D*)(\d{1,3}(?:\.\d{3})+|\d+),(\d+)(?![\d.,])(.*)", re.DOTALL)
_NO_UNIT = re.compile(
    r"\b(?:not|or|and|nor|never|to|between|but|than|wrong|incorrect|false|dozens?|half|quarters?|thirds?)\b",
    re.IGNORECASE,
)
"""Words behind a number that make it another one, or deny it."""
_CODE = re.compile(r"\D*0\d")
_INSIDE = re.compile(
    rf"(?<![\w.,/])(?:(?P<sign>-)(?={_MONEY}?[\d.]))?{_MONEY}?(?:(?P<inner>-)(?=[\d.]))?"
    rf"(?:(?P<over>\d+)/(?P<under>\d+)|(?P<decimal>{_DECIMAL}))(?![\d,.]*\d|/\d)"
)


@dataclass(frozen=True)
class Number:
    """A number as it was written: its value, whether in hundredths, and the words of its unit."""

    value: Fraction
    percent: bool = False
    unit: frozenset[str] = frozenset()


def read_number(text: str) -> Number | None:
    r"""The number that a text is, with nothing beside it but a unit; None where it is none, or several.

    >>> read_number("$1,234.50").value
    Fraction(2469, 2)
    >>> read_number(r"\boxed{\frac{3}{4}}").value
    Fraction(3, 4)
    """
    match = _NUMBER.fullmatch(_plain(text)) if len(text) <= LONGEST else None
    if match is None or (match["sign"] and match["inner"]) or _NO_UNIT.search(match["unit"]):
        return None
    value = _value(match.groupdict())
    if value is None or (match["decimal"] and _CODE.match(match["decimal"])):
        return None
    words = [word.casefold() for word in re.findall(r"[^\W\d_]+", match["unit"])]
    money = [CURRENCIES[match["money"]]] if match["money"] else []
    return Number(
        value, bool(match["percent"]), frozenset(word.rstrip("s") or word for word in words + money)
    )


def same_number(said: Number, wanted: Number, tolerance: float = 0.0) -> bool:
    """Whether two numbers are equal: exactly, or up to ``tolerance`` × the size of the wanted one.

    A percent sign on one side only may be a unit (50% for 50) or be meant (50% for 0.5). Units count where
    both sides name one: the words of one are then among those of the other.
    """
    if said.unit and wanted.unit and not (said.unit <= wanted.unit or wanted.unit <= said.unit):
        return False
    values = {said.value}
    if said.percent != wanted.percent:
        values.add(said.value / 100 if said.percent else said.value * 100)
    room = Fraction(tolerance) * abs(wanted.value)
    return any(abs(value - wanted.value) <= room for value in values)


def with_numbers(text: str) -> str:
    """A text with each number in one spelling of letters and digits, which no normalisation of text changes.

    >>> with_numbers("-5 of 1,000, or 1.4 million")
    'minus5 of 1000, or 7over5 million'
    """
    return _INSIDE.sub(_spelled, text.replace("\u2212", "-"))


def _spelled(match: re.Match[str]) -> str:
    """One spelling of a number; a code such as 007 as it is."""
    value = None if _CODE.match(match["decimal"] or "") else _value(match.groupdict())
    if value is None:
        return match[0]
    over = "" if value.denominator == 1 else f"over{value.denominator}"
    return f"{'minus' if value < 0 else ''}{abs(value.numerator)}{over}"


def _plain(text: str) -> str:
    """A text that is a number in the one way in which it is read."""
    while (inner := _WRAPPED.sub(r"\1", text)) != text:
        text = inner
    text = re.sub("[⁰¹²³⁴-⁹⁻]+", lambda found: "^" + found[0].translate(_SUPERSCRIPTS), text)
    for pattern, written in _REWRITTEN:
        text = re.sub(pattern, written, text)
    text = unicodedata.normalize("NFKC", text).replace("\u2044", "/").strip()
    while (inner := _BRACKETED.fullmatch(text := text.rstrip(".!,;: \n"))) is not None:
        text = next(part for part in inner.groups() if part is not None).strip()
    text = _SPACED.sub(lambda found: found[1] + found[2].replace(" ", ""), text, count=1)
    comma = _COMMA.fullmatch(text)
    if comma and (len(comma[3]) != 3 or not re.fullmatch(r"\d{1,3}", comma[2])):
        before, whole, decimals, behind = comma.groups()
        text = f"{before}{whole.replace('.', '')}.{decimals}{behind}"
    return text


def _value(part: dict[str, str | None]) -> Fraction | None:
    """The value of a match; None where it divides by zero or is beyond all bounds."""
    digits = "".join(part[name] or "" for name in ("decimal", "over", "under"))
    power = int(part.get("power") or 0) + SCALES.get(_scale(part.get("scale") or ""), 0)
    if len(digits) > MOST_DIGITS or abs(power) > MOST_DIGITS:
        return None
    if part["over"] is None:
        value = Fraction((part["decimal"] or "").replace(",", "")) * Fraction(10) ** power
    else:
        under = int(part["under"] or 0)
        if under == 0:
            return None
        value = int(part.get("whole") or 0) + Fraction(int(part["over"]), under)
    return -value if "-" in (part["sign"] or "") + (part["inner"] or "") else value


def _scale(written: str) -> str:
    """A scale as the table has it: words in any case, letters as they are."""
    return written.lower() if len(written) > 1 else written
