r"""Reads numbers as people and models write them, exactly, and compares them.

It reads signs, currencies, thousands (1,234; 12,34,567; 1.234.567; 1 234 alone), decimals (1.5;
1,5, 0,125 and 1.234,5 where unambiguous), exponents (1.5e3, 6 \times 10^{23}), fractions (3/4,
3 1/2, ½, \frac{3}{4}), percent, hundred to trillion, and the words of a unit after the number. A comma
before three digits separates thousands; a single point never does. Ranges, dates, times, sums, multiples of
π or x and codes such as 007 are not numbers.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from truing.rewards.number_spelling import MONEY, plain_number

MAX_DIGITS = 400
"""Largest number of digits, and largest power of ten; more would take unbounded time and memory."""

MAX_CHARS = 1000
"""Longest text that is read as a number, characters."""

SCALES = {
    "hundred": 2,
    "thousand": 3,
    "k": 3,
    "K": 3,
    "million": 6,
    "m": 6,
    "M": 6,
    "b": 9,
    "B": 9,
    "billion": 9,
    "bn": 9,
    "trillion": 12,
    "t": 12,
    "T": 12,
}
"""Powers of ten as words or letters; m, b and t count after a currency only."""

UNITS = {
    **{"$": "dollar", "usd": "dollar", "€": "euro", "eur": "euro", "£": "pound", "gbp": "pound"},
    **{"¥": "yen", "₹": "rupee", "₩": "won", "¢": "cent", "kg": "kilogram", "g": "gram", "gm": "gram"},
    **{"mm": "millimeter", "cm": "centimeter", "km": "kilometer", "ft": "foot", "feet": "foot", "yd": "yard"},
    **{"millimetre": "millimeter", "centimetre": "centimeter", "metre": "meter", "kilometre": "kilometer"},
    **{"mi": "mile", "lb": "pound", "oz": "ounce", "hr": "hour", "min": "minute", "sec": "second"},
    **{"m": "meter", "s": "second", "h": "hour", "yr": "year", "sq": "square", "mg": "milligram"},
    **{"inche": "inch", "litre": "liter", "ml": "milliliter", "millilitre": "milliliter"},
}
"""Spellings of units → one of them; each without the plural s."""

_DECIMAL = r"(?:[1-9]\d{0,2}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(
    rf"#?(?P<sign>[+-]?)\s*(?P<money>{MONEY})?\s*(?P<inner>[+-]?)"
    rf"(?:(?:(?P<whole>\d+)\s+)?(?P<over>\d+)\s*/\s*(?P<under>\d+)"
    rf"|(?P<decimal>{_DECIMAL})(?:e(?P<power>[+-]?\d+))?)(?![\d.,]*\d|\s*/\s*\d)"
    rf"(?:\s*(?P<scale>hundred|thousand|million|billion|trillion|(?<=\d)(?-i:k|K|M|B|bn)|(?(money)[mbt]|(?!)))\b)?"
    rf"\s*(?P<percent>%|per\s?cent\b)?(?P<unit>(?:[^\W\d_]|[°./²³\s]|{MONEY}|(?<=[^\W\d_])\^[23])*)",
    re.IGNORECASE,
)
_NO_UNIT = re.compile(
    r"\b(?:not|or|and|nor|never|to|between|but|than|wrong|incorrect|false|dozens?|hal(?:f|ves)|quarters?|thirds?"
    r"|(?:four|fif|six|seven|eigh|nin|ten|hundred|thousand|million)ths?|below|[xyzeiπθ]|pi)\b"
    r"|^\s*(?:squared|cubed|factorial|sin|cos|tan|log|ln|exp)\b",
    re.IGNORECASE,
)
"""Words after a number that change or negate it."""
_CODE = re.compile(r"\D*0\d")
_INSIDE = re.compile(
    rf"(?<![\w.,/])(?<!{MONEY})(?<!{MONEY}-)(?:(?<!-)(?P<sign>-)(?={MONEY}?[\d.]))?"
    rf"(?:{MONEY}(?:(?P<inner>-)(?=[\d.]))?)?"
    rf"(?:(?P<over>\d+)/(?P<under>\d+)|(?P<decimal>{_DECIMAL}))(?![\d,.]*\d|/\d)"
)


@dataclass(frozen=True)
class Number:
    """A number: its value, whether it is a percentage, and the words of its unit."""

    value: Fraction
    percent: bool = False
    unit: frozenset[str] = frozenset()


def read_number(text: str) -> Number | None:
    r"""Return the number that a text is, with at most a unit; None for other texts.

    >>> read_number("$1,234.50").value
    Fraction(2469, 2)
    >>> read_number(r"\boxed{\frac{3}{4}}").value
    Fraction(3, 4)
    """
    match = _NUMBER.fullmatch(plain_number(text)) if len(text) <= MAX_CHARS else None
    if match is None or (match["sign"] and match["inner"]) or _NO_UNIT.search(match["unit"]):
        return None
    value = _value(match.groupdict())
    if value is None or (match["decimal"] and _CODE.match(match["decimal"])):
        return None
    words = re.findall(rf"[^\W\d_]+|{MONEY}", (match["money"] or "") + match["unit"])
    return Number(value, bool(match["percent"]), frozenset(map(_unit, words)))


def same_number(answer: Number, expected: Number, tolerance: float = 0.0) -> bool:
    """Whether two numbers are equal: exactly, or up to ``tolerance`` × the expected one.

    A percent sign on one side only may be a unit (50% for 50) or a factor (50% for 0.5). Units count if both
    sides have one: the words of one must then be among those of the other.
    """
    if answer.unit and expected.unit and not (answer.unit <= expected.unit or expected.unit <= answer.unit):
        return False
    values = {answer.value}
    if answer.percent != expected.percent:
        values.add(answer.value / 100 if answer.percent else answer.value * 100)
    limit = Fraction(tolerance) * abs(expected.value)
    return any(abs(value - expected.value) <= limit for value in values)


def normalize_numbers(text: str) -> str:
    """Return a text with each number spelled in letters and digits, which text normalization does not change.

    >>> normalize_numbers("-5 of 1,000, or 1.4 million")
    'minus5 of 1000, or 7over5 million'
    """
    return _INSIDE.sub(_spelled, text.replace("\u2212", "-"))


def _spelled(match: re.Match[str]) -> str:
    """Return the spelling of a number in letters and digits; a code such as 007 is unchanged."""
    value = None if _CODE.match(match["decimal"] or "") else _value(match.groupdict())
    if value is None:
        return match[0]
    over = "" if value.denominator == 1 else f"over{value.denominator}"
    return f"{'minus' if value < 0 else ''}{abs(value.numerator)}{over}"


def _value(part: dict[str, str | None]) -> Fraction | None:
    """Return the value of a match; None on a division by zero, or above the limits."""
    digits = "".join(part[name] or "" for name in ("decimal", "over", "under"))
    power = int(part.get("power") or 0) + SCALES.get(_scale(part.get("scale") or ""), 0)
    if len(digits) > MAX_DIGITS or abs(power) > MAX_DIGITS:
        return None
    if part["over"] is None:
        value = Fraction((part["decimal"] or "").replace(",", "")) * Fraction(10) ** power
    else:
        under = int(part["under"] or 0)
        if under == 0:
            return None
        value = int(part.get("whole") or 0) + Fraction(int(part["over"]), under)
    return -value if "-" in (part["sign"] or "") + (part["inner"] or "") else value


def _unit(written: str) -> str:
    """Return a unit's name, without the plural s and not abbreviated."""
    word = written.casefold()
    word = word.rstrip("s") or word
    return UNITS.get(word, word)


def _scale(written: str) -> str:
    """Return a key of ``SCALES``: words in lower case, letters unchanged."""
    return written.lower() if len(written) > 1 else written
