"""Normalizes spellings of numbers, of people, locales and LaTeX, to one."""

import re
import sys
import unicodedata

MONEY = f"[{''.join(c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) == 'Sc')}]"
"""A regular expression for any currency sign."""

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_REWRITTEN = (
    (r"[\u2212\ufe63\uff0d]", "-"),
    (r"(?<![^\s($€£{])[\u2010-\u2015](?=\s?[$€£.]?\d)", "-"),  # a dash before a number
    (r"(?<=\d)(?:\{,\}|\\,|[\u066c_])(?=\d{3}(?!\d))", ","),  # thousands
    (r"(?<=\d)[\u00a0\u2009\u202f'\u2019](?=\d{3}(?!\d))", " "),
    (r"(?<=\d)\u066b(?=\d)", "."),
    (r"(?<=\d)(?=[¼-¾⅐-⅞])", " "),  # 3½ is 3 1/2
    (r"\\(?:left|right)\b|\\[()\[\]]|\\(?=[%${}])", ""),
    (r"\^\s*(?:\\circ\b|\{\s*\\circ\s*\})", "°"),
    (r"\\[,;:! ]|(?<=\d)~", " "),
    (r"\s*\\[dtc]?frac\s*\{?\s*(\d+)\s*\}?\s*\{?\s*(\d+)\s*\}?", r" \1/\2"),
    (r"\\[dtc]?frac\s*\{\s*-\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}", r"-\1/\2"),
    (r"\\[dtc]?frac\s*\{\s*(\d+)\s*\}\s*\{\s*-\s*(\d+)\s*\}", r"-\1/\2"),
    (r"\s*(?:\\times|\\cdot|×|\*|x)\s*10\s*(?:\^|\*\*)\s*[{(]?([+-]?\d+)[})]?", r"e\1"),
    (r"^([\s+-]*)10\s*(?:\^|\*\*)\s*[{(]?([+-]?\d+)[})]?", r"\1 1e\2"),
    (r"[*`]+", ""),
    (r"(?i)\b(?:minus|negative)\s+(?=[$€£.\d])", "-"),
    (r"-\s*\(\s*([\d.,/]+)\s*\)", r"-\1"),
    (r"\b(?:[A-Z]{1,3})(?=[$]\s?[\d.-])", ""),  # US$5
)
"""Spellings → the normalized spelling."""

_WRAPPED = re.compile(r"\\(?:boxed|text|textbf|mathbf|mathrm)\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_BRACKETED = re.compile(r"\$(.*)\$|\((.*)\)|\[(.*)\]|\{(.*)\}|\"(.*)\"|“(.*)”|'(.*)'", re.DOTALL)
_SPACED = re.compile(rf"((?:[+-]|{MONEY}|\s)*\d{{1,3}})((?: \d{{3}})+)(?!\d)(?=\D|$)")
_POINTED = re.compile(r"(\D*)(\d{1,3}(?:\.\d{3}){2,})(?![\d.,])(.*)", re.DOTALL)
_INDIAN = re.compile(r"(\D*)(\d{1,2}(?:,\d{2})+,\d{3})(?![\d,])(.*)", re.DOTALL)
_COMMA = re.compile(r"(\D*)(\d{1,3}(?:\.\d{3})+|\d+),(\d+)(?![\d.,])(.*)", re.DOTALL)


def plain_number(text: str) -> str:
    r"""Return the normalized spelling of a number; other texts may change too.

    >>> plain_number(r"$\frac{3}{4}$"), plain_number("1.234,50 €"), plain_number("12,34,567")
    ('3/4', '1234.50 €', '1234567')
    """
    while (inner := _WRAPPED.sub(r"\1", text)) != text:
        text = inner
    text = re.sub("[⁰¹²³⁴-⁹⁻]+", lambda match: "^" + match[0].translate(_SUPERSCRIPTS), text)
    for pattern, written in _REWRITTEN:
        text = re.sub(pattern, written, text)
    text = unicodedata.normalize("NFKC", text).replace("\u2044", "/").strip()
    while (inner := _BRACKETED.fullmatch(text := text.rstrip(".!,;: \n"))) is not None:
        text = next(part for part in inner.groups() if part is not None).strip()
    return _without_separators(text)


def _without_separators(text: str) -> str:
    """Return a text without thousands separators, where unambiguous, and with a decimal point."""
    text = _SPACED.sub(lambda match: match[1] + match[2].replace(" ", ""), text, count=1)
    for pattern, separator in ((_POINTED, "."), (_INDIAN, ",")):
        if (match := pattern.fullmatch(text)) is not None:
            text = match[1] + match[2].replace(separator, "") + match[3]
    comma = _COMMA.fullmatch(text)
    if comma and (len(comma[3]) != 3 or not re.fullmatch(r"[1-9]\d{0,2}", comma[2])):
        before, whole, decimals, behind = comma.groups()
        text = f"{before}{whole.replace('.', '')}.{decimals}{behind}"
    return text
