"""Call reward functions on a rollout. A function that fails is an error, never a reward of 0."""

import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from truing.errors import JudgeUnavailable, RewardError, SkipGroup
from truing.types.rollout import Rollout, Task
from truing.utils.deep_copy import deep_copy


@dataclass(frozen=True)
class PerTurn:
    """What a reward function returns that judges each turn: a finite number for each, in their order."""

    scores: Sequence[float]

    def __post_init__(self) -> None:
        given: Any = self.scores  # by a function of the user's, which nobody type-checked
        if not isinstance(given, Sequence | np.ndarray):
            raise RewardError(
                "truing.PerTurn needs the scores of turns in their order",
                got=f"a {type(given).__name__}",
                expected="a list of numbers",
            )


class GradeResult(NamedTuple):
    """What a rollout earned."""

    reward: float  # the weighted sum of all parts
    parts: dict[str, float]  # as their functions returned them, not weighted; of turns, the sum
    turn_rewards: tuple[float, ...] = ()  # the weighted share of each turn; none where no function says


RewardFn = Callable[[Rollout, Task], float | PerTurn]
"""Judges one rollout: a finite number, or one for each of its turns; the higher the better."""

Rewards = Mapping[str, tuple[RewardFn, float]]
"""What a task is judged by: name → (function, weight). Weight 0 records a part and trains on none of it."""

SHOWN = 300
"""Characters of a response that an error shows."""


def reward_range(rewards: Rewards) -> tuple[float, float]:
    """The least and the most that an attempt can earn: the sums of all weights below 0, and above.

    Each part is taken to lie in [0, 1]; one with a weight below 0 is a penalty.
    """
    weights = [weight for _, weight in rewards.values()]
    return math.fsum(min(weight, 0.0) for weight in weights), math.fsum(
        max(weight, 0.0) for weight in weights
    )


def grade(rollout: Rollout, rewards: Rewards) -> GradeResult:
    """Judge a rollout by every reward function.

    Args:
        rollout: The attempt; its task is handed to each function too.
        rewards: name → (function, weight).

    Raises:
        RewardError: A function raised (its traceback is chained), or returned anything but one finite
            number; True and False count as a mistake, since a comparison is easily returned for a score.
    """
    if not rewards:
        raise RewardError(
            "there is no reward function", remedy="give at least one: name → (function, weight)"
        )
    scores = {name: _call(name, function, rollout) for name, (function, _) in rewards.items()}
    weights = {name: weight for name, (_, weight) in rewards.items()}
    try:
        parts = {
            name: score if isinstance(score, float) else math.fsum(score) for name, score in scores.items()
        }
        total = math.fsum(weights[name] * part for name, part in parts.items())
        turns = _by_turn(scores, weights)
        finite = all(map(math.isfinite, (total, *turns)))
    except OverflowError:  # as fsum says it
        finite = False
    if not finite:
        raise RewardError(
            "the weighted sum of rewards is not finite", got=f"scores {scores}, weights {weights}"
        )
    return GradeResult(total, parts, turns)


def _by_turn(
    scores: Mapping[str, float | tuple[float, ...]], weights: Mapping[str, float]
) -> tuple[float, ...]:
    """The weighted sum of what each turn earns by the functions that judge turns."""
    weighted = [
        [weights[name] * score for score in each]
        for name, each in scores.items()
        if not isinstance(each, float)
    ]
    return tuple(math.fsum(turn) for turn in zip(*weighted, strict=True))


def _call(name: str, function: RewardFn, rollout: Rollout) -> float | tuple[float, ...]:
    """One reward of one rollout, or those of its turns, checked."""
    where = f"reward {name!r} ({_title(function)}) of task {rollout.task.task_id!r}"
    response = rollout.text if len(rollout.text) <= SHOWN else rollout.text[:SHOWN] + " […]"
    seen = deep_copy(rollout, f"the rollout of task {rollout.task.task_id}")  # a grader may sort it in place
    try:
        value = function(seen, seen.task)
    except (JudgeUnavailable, SkipGroup):
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise RewardError(
            f"{where} raised {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})",
            got=f"response {response!r}",
            remedy="make it score every response",
        ) from error
    each = value.scores if isinstance(value, PerTurn) else [value]
    expected = "one finite number"
    problem, remedy = next((found for found in map(_problem, each) if found[0]), ("", ""))
    if isinstance(value, PerTurn) and not problem and len(each) != len(rollout.turns):
        problem, remedy = f"{len(each)} scores", "score every turn of rollout.turns; 0 is a score"
        expected = f"{len(rollout.turns)}, one for each turn"
    if problem:
        raise RewardError(
            f"{where} returned {problem}",
            got=f"{value!r:.{SHOWN}} for response {response!r}",
            expected=expected,
            remedy=remedy,
        )
    return tuple(map(float, each)) if isinstance(value, PerTurn) else float(value)


def _problem(value: Any) -> tuple[str, str]:
    """What is wrong with a returned value, and the cure; two empty strings where nothing is."""
    if value is None:
        return "None", "end every branch of the function with a return"
    if isinstance(value, bool):
        return "a bool", "return float(…) if right is 1 and wrong is 0"
    if isinstance(value, list | tuple):
        return (
            f"{len(value)} values",
            "return its one score, or truing.PerTurn of one score for each turn",
        )
    if not isinstance(value, Real):
        return f"a {type(value).__name__}", "return a plain number, e.g. by .item() or float(…)"
    if not _finite(value):
        return "what is not finite", "bound the score, and guard divisions and logarithms"
    return "", ""


def _finite(number: Real) -> bool:
    """Whether a number is finite as a float."""
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number beyond the largest float
        return False


def _title(function: RewardFn) -> str:
    """The function as its author named it."""
    return getattr(function, "__qualname__", repr(function))
