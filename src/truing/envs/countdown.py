"""Countdown: reach a target from some numbers, each used at most once."""

import ast
import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from pydantic import Field

from truing.config import FrozenModel, PositiveInt
from truing.envs.arithmetic.questions import Draws
from truing.envs.base import Split
from truing.envs.data.generated import draw_distinct
from truing.rewards import AnswerFormat, RewardFn, Rewards, extract_answer, follows_format, format_answer
from truing.types.rollout import Rollout, Task

MAX_EXPRESSION_CHARS = 200
"""Characters of the longest expression that is read: far more than any solution takes."""

SIGNS = {"×": "*", "÷": "/", "−": "-"}

_EXPRESSION = re.compile(r"[0-9+\-*/() ]+")

_OPERATORS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class CountdownConfig(FrozenModel):
    """Which puzzles are made, and how many."""

    numbers: Annotated[int, Field(ge=2, le=6)] = 4
    """How many numbers a puzzle gives."""
    largest: Annotated[int, Field(ge=2)] = 20
    """Numbers are from 1 to this."""
    largest_target: Annotated[int, Field(ge=2)] = 100
    """Targets are from 1 to this."""
    train: PositiveInt = 1024
    """How many puzzles to train on, all different."""
    eval: PositiveInt = 256
    """How many puzzles to evaluate on, all different, none of them trained on."""
    seed: int = 0
    """Another seed makes other puzzles, and keeps others for evaluation."""
    answer_format: AnswerFormat = "line"
    """Where the expression stands: on the only "line" of the response, or in a closing "tag"."""
    system: str = "Use + - * / and brackets, and each number at most once. Reply with the expression only."
    """The system message; where it is empty there is none."""


@dataclass(frozen=True)
class Puzzle:
    """Numbers, and what is to be made of them."""

    numbers: tuple[int, ...]
    target: int


class Countdown:
    """Puzzles drawn by keyed hashing, each with a solution that was drawn first."""

    Config = CountdownConfig
    notes: Sequence[str] = ()

    def __init__(self, config: CountdownConfig) -> None:
        self.config = config
        self.rewards: Rewards = {
            "success": (_success(config.answer_format), 1.0),
            "format": (_format(config.answer_format), 0.0),
        }
        self._tasks: dict[Split, Sequence[Task]] = {
            "train": self._make("train", config.train),
            "eval": self._make("eval", config.eval),
        }

    def tasks(self, split: Split) -> Sequence[Task]:
        """The puzzles of a split."""
        return self._tasks[split]

    def _make(self, split: Split, wanted: int) -> list[Task]:
        """The first ``wanted`` puzzles of a split."""
        config = self.config
        system = [{"role": "system", "content": config.system}] if config.system else []
        made = draw_distinct(lambda attempt: _draw(config, attempt), split, wanted, config.seed, "countdown")
        return [
            Task(
                task_id=f"countdown-{config.seed}-{split}-{index}",
                family="countdown",
                messages=(*system, {"role": "user", "content": asked}),
                answer=puzzle,
                demonstration=format_answer(solution, config.answer_format),
            )
            for index, (asked, (puzzle, solution)) in enumerate(made)
        ]


def value_of(expression: str, numbers: Sequence[int]) -> Fraction | None:
    """The exact value of an expression that uses each number at most once.

    None where it is no such expression: unreadable, another number, one used twice, a division by zero.

    >>> value_of("(3 + 5) / 2", [2, 3, 5])
    Fraction(4, 1)
    """
    tree = _parsed(expression)
    if tree is None:
        return None
    used = Counter(node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return _value(tree) if used <= Counter(numbers) else None


def _parsed(expression: str) -> ast.expr | None:
    """The tree of an expression of whole numbers, signs and brackets; None where the text is none."""
    plain = expression.translate(str.maketrans(SIGNS)).strip()
    if len(plain) > MAX_EXPRESSION_CHARS or not _EXPRESSION.fullmatch(plain):
        return None
    try:
        tree = ast.parse(plain, mode="eval").body
    except SyntaxError:
        return None
    return tree if _is_arithmetic(tree) else None


def _is_arithmetic(node: ast.expr) -> bool:
    """Whether a tree holds whole numbers and the four operators, and nothing else."""
    if isinstance(node, ast.BinOp):
        return type(node.op) in _OPERATORS and _is_arithmetic(node.left) and _is_arithmetic(node.right)
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def _value(node: ast.expr) -> Fraction | None:
    """The value of an arithmetic tree; None where it divides by zero."""
    if isinstance(node, ast.Constant):
        return Fraction(node.value)
    left, right = _value(node.left), _value(node.right)
    if left is None or right is None or (isinstance(node.op, ast.Div) and right == 0):
        return None
    return _OPERATORS[type(node.op)](left, right)


def _draw(config: CountdownConfig, attempt: int) -> tuple[str, tuple[Puzzle, str]]:
    """A puzzle and a solution: numbers are joined two by two until the target is left."""
    draws = Draws(config.seed, "countdown", config.numbers, config.largest, config.largest_target, attempt)
    while True:
        numbers = [draws.between(1, config.largest) for _ in range(config.numbers)]
        target, solution = _join(draws, [(number, str(number)) for number in numbers])
        if target <= config.largest_target and target not in numbers:
            # in ascending order, so that no puzzle is another one with its numbers shuffled
            puzzle = Puzzle(tuple(sorted(numbers)), target)
            return f"Make {target} from {' '.join(map(str, puzzle.numbers))}.", (puzzle, solution)


def _join(draws: Draws, parts: list[tuple[int, str]]) -> tuple[int, str]:
    """Join two parts, drawn at random, until one is left; every value on the way is a whole number ≥ 1."""
    while len(parts) > 1:
        pair = [parts.pop(draws.between(0, len(parts) - 1)) for _ in range(2)]
        (small, small_text), (large, large_text) = sorted(pair)
        ways = [(large + small, "+"), (large * small, "*")]
        if large > small:
            ways.append((large - small, "-"))
        if large % small == 0:
            ways.append((large // small, "/"))
        value, sign = ways[draws.between(0, len(ways) - 1)]
        parts.append((value, f"({large_text} {sign} {small_text})"))
    value, text = parts[0]
    return value, text[1:-1]


def _success(answer_format: AnswerFormat) -> RewardFn:
    """A reward of 1.0 where the expression uses the puzzle's numbers and makes its target."""

    def success(rollout: Rollout, task: Task) -> float:
        said = extract_answer(rollout.text, answer_format)
        return float(said is not None and value_of(said, task.answer.numbers) == task.answer.target)

    return success


def _format(answer_format: AnswerFormat) -> RewardFn:
    """A reward of 1.0 where the response is one expression, whatever its value and numbers."""

    def expression(rollout: Rollout, task: Task) -> float:
        said = extract_answer(rollout.text, answer_format)
        readable = said is not None and _parsed(said) is not None
        return float(readable and follows_format(rollout.text, answer_format))

    return expression
