"""The kinds of generated questions. Each is a pure function of its draws."""

from collections.abc import Callable
from functools import partial

from truing.utils.rng import seed_of

LETTERS = "abcdefghijklmnopqrstuvwxyz"
DIGITS = "0123456789"

Question = tuple[str, str]
"""A question, and its one right answer."""


class Draws:
    """A sequence of whole numbers determined by a key."""

    def __init__(self, *key: object) -> None:
        self.key, self.drawn = key, 0

    def between(self, low: int, high: int) -> int:
        """Return the next number, with ``low ≤ number ≤ high``."""
        self.drawn += 1
        return low + seed_of(*self.key, self.drawn) % (high - low + 1)

    def number(self, digits: int) -> int:
        """Return a number with exactly this many digits; 0 has one."""
        return self.between(10 ** (digits - 1) if digits > 1 else 0, 10**digits - 1)

    def distinct(self, count: int, draw: Callable[[], int]) -> list[int]:
        """``count`` different numbers, in the order drawn."""
        values: list[int] = []
        while len(values) < count:
            value = draw()
            if value not in values:
                values.append(value)
        return values

    def word(self, length: int, alphabet: str = LETTERS) -> str:
        """A word of random letters."""
        return "".join(alphabet[self.between(0, len(alphabet) - 1)] for _ in range(length))


def _add(draws: Draws, operands: int, digits: int) -> Question:
    """The sum of numbers."""
    numbers = [draws.number(digits) for _ in range(operands)]
    return "What is " + " + ".join(map(str, numbers)) + "?", str(sum(numbers))


def _subtract(draws: Draws, digits: int) -> Question:
    """The difference of two numbers, the larger first."""
    small, large = sorted((draws.number(digits), draws.number(digits)))
    return f"What is {large} - {small}?", str(large - small)


def _missing(draws: Draws, digits: int) -> Question:
    """The operand that an equation lacks."""
    known, unknown = draws.number(digits), draws.number(digits)
    return f"{known} + x = {known + unknown}. What is x?", str(unknown)


def _largest(draws: Draws, count: int, digits: int) -> Question:
    """The largest of some numbers."""
    numbers = draws.distinct(count, partial(draws.number, digits))
    return f"Which is the largest: {_listed(numbers)}?", str(max(numbers))


def _sort(draws: Draws, count: int, digits: int) -> Question:
    """Numbers in ascending order."""
    numbers = draws.distinct(count, partial(draws.number, digits))
    return f"Sort from small to large: {_listed(numbers)}", _listed(sorted(numbers))


def _count(draws: Draws, length: int) -> Question:
    """How often the first letter of a word of few different letters occurs in it."""
    word = draws.word(length, "".join(LETTERS[i] for i in draws.distinct(3, partial(draws.between, 0, 25))))
    return f"How many times is {word[0]} in {' '.join(word)}?", str(word.count(word[0]))


def _last(draws: Draws, length: int) -> Question:
    """The last letter of a word."""
    word = draws.word(length)
    return f"What is the last letter of {word}?", word[-1]


def _reverse(draws: Draws, length: int) -> Question:
    """A list of digits from its end to its start."""
    digits = [draws.number(1) for _ in range(length)]
    return f"Reverse the list: {_listed(digits)}", _listed(digits[::-1])


def _first(draws: Draws, length: int) -> Question:
    """The first of some digits."""
    digits = draws.word(length, DIGITS)
    return f"{digits}>", digits[0]


def _max(draws: Draws) -> Question:
    """The larger of two digits."""
    left, right = draws.number(1), draws.number(1)
    return f"max {left} {right}=", str(max(left, right))


def _listed(numbers: list[int]) -> str:
    """Numbers with blanks between them, which takes the fewest tokens."""
    return " ".join(map(str, numbers))


KINDS: dict[str, Callable[[Draws], Question]] = {
    "add-1": partial(_add, operands=2, digits=1),
    "add-2": partial(_add, operands=2, digits=2),
    "add-3": partial(_add, operands=2, digits=3),
    "sum-3": partial(_add, operands=3, digits=1),
    "subtract-2": partial(_subtract, digits=2),
    "missing-1": partial(_missing, digits=1),
    "missing-2": partial(_missing, digits=2),
    "largest-3": partial(_largest, count=3, digits=2),
    "largest-5": partial(_largest, count=5, digits=2),
    "sort-3": partial(_sort, count=3, digits=2),
    "sort-4": partial(_sort, count=4, digits=2),
    "count-5": partial(_count, length=5),
    "last-5": partial(_last, length=5),
    "reverse-4": partial(_reverse, length=4),
    "reverse-6": partial(_reverse, length=6),
    "first-3": partial(_first, length=3),
    "max": _max,
}
"""name → function. A number after the name is its level: digits, operands, items or letters."""
