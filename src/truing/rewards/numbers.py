r"""Numbers as people and models write them, read exactly and compared as numbers.

Read are signs, currencies, thousands (1,234; 12,34,567; 1.234.567; 1 234 where that is all), decimals (1.5;
1,5, 0,125 and 1.234,5 where there is no other reading), exponents (1.5e3, 6 \times 10^{23}), fractions (3/4,
3 1/2, ½, \frac{3}{4}), percent, hundred to trillion, and the words of a unit behind the number. A comma
before three digits separates thousands; one point never does. Ranges, dates, times, sums, multiples of π or
x and codes such as 007 are no numbers.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from truing.rewards.number_spelling import MONEY, plain_number

MAX_DIGITS = 400
"""Of a number or its power of ten; more is no answer, and would take time and memory without end."""

MAX_CHARS = 1000
"""Characters of a text that could be a number."""

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
"""Powers of ten that are written as words or letters; m, b and t are such of money alone."""

UNITS = {
    **{"$": "dollar", "usd": "dollar", "€": "euro", "eur": "euro", "£": "pound", "gbp": "pound"},
    **{"¥": "yen", "₹": "rupee", "₩": "won", "¢": "cent", "kg": "kilogram", "g": "gram", "gm": "gram"},
    **{"mm": "millimeter", "cm": "centimeter", "km": "kilometer", "ft": "foot", "feet": "foot", "yd": "yard"},
    **{"millimetre": "millimeter", "centimetre": "centimeter", "metre": "meter", "kilometre": "kilometer"},
    **{"mi": "mile", "lb": "pound", "oz": "ounce", "hr": "hour", "min": "minute", "sec": "second"},
    **{"inche": "inch", "litre": "liter", "ml": "milliliter", "millilitre": "milliliter"},
}
"""Units that are written in several ways → one of them; each without the s of its plural."""

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
    r"|(?:four|fif|six|seven|eigh|nin|ten|hundred|thousand|million)ths?|below|[xyzeiπθ]|pi)\b",
    re.IGNORECASE,
)
"""Words behind a number that make it another one, or deny it."""
_CODE = re.compile(r"\D*0\d")
_INSIDE = re.compile(
    rf"(?<![\w.,/])(?<!{MONEY})(?<!{MONEY}-)(?:(?<!-)(?P<sign>-)(?={MONEY}?[\d.]))?"
    rf"(?:{MONEY}(?:(?P<inner>-)(?=[\d.]))?)?"
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
    match = _NUMBER.fullmatch(plain_number(text)) if len(text) <= MAX_CHARS else None
    if match is None or (match["sign"] and match["inner"]) or _NO_UNIT.search(match["unit"]):
        return None
    value = _value(match.groupdict())
    if value is None or (match["decimal"] and _CODE.match(match["decimal"])):
        return None
    words = re.findall(rf"[^\W\d_]+|{MONEY}", (match["money"] or "") + match["unit"])
    return Number(value, bool(match["percent"]), frozenset(map(_unit, words)))


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


def normalize_numbers(text: str) -> str:
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


def _value(part: dict[str, str | None]) -> Fraction | None:
    """The value of a match; None where it divides by zero or is beyond all bounds."""
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
    """A unit's one name: without the s of its plural, and no abbreviation."""
    word = written.casefold()
    word = word.rstrip("s") or word
    return UNITS.get(word, word)


def _scale(written: str) -> str:
    """A scale as the table has it: words in any case, letters as they are."""
    return written.lower() if len(written) > 1 else written
