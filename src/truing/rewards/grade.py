"""Call reward functions on a rollout. A function that fails is an error, never a reward of 0."""

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from truing.errors import JudgeUnavailable, RewardError, SkipGroup
from truing.types import Rollout, Task

RewardFn = Callable[[Rollout, Task], float]
"""Judges one rollout: a finite number, the higher the better."""

Rewards = Mapping[str, tuple[RewardFn, float]]
"""What a task is judged by: name → (function, weight). Weight 0 records a part and trains on none of it."""

SHOWN = 300
"""Characters of a response that an error shows."""


def grade(rollout: Rollout, rewards: Rewards) -> tuple[float, dict[str, float]]:
    """Judge a rollout by every reward function.

    Args:
        rollout: The attempt; its task is handed to each function too.
        rewards: name → (function, weight).

    Returns:
        The weighted sum, and each part as its function returned it (not weighted).

    Raises:
        RewardError: A function raised (its traceback is chained), or returned anything but one finite
            number; True and False count as a mistake, since a comparison is easily returned for a score.
    """
    if not rewards:
        raise RewardError(
            "there is no reward function", remedy="give at least one: name → (function, weight)"
        )
    parts = {name: _call(name, function, rollout) for name, (function, _) in rewards.items()}
    total = math.fsum(weight * parts[name] for name, (_, weight) in rewards.items())
    if not math.isfinite(total):
        weights = {name: weight for name, (_, weight) in rewards.items()}
        raise RewardError(
            "the weighted sum of rewards is not finite", got=f"parts {parts}, weights {weights}"
        )
    return total, parts


def _call(name: str, function: RewardFn, rollout: Rollout) -> float:
    """One reward of one rollout, checked."""
    where = f"reward {name!r} ({_title(function)}) of task {rollout.task.task_id!r}"
    response = rollout.text if len(rollout.text) <= SHOWN else rollout.text[:SHOWN] + " […]"
    try:
        value = function(rollout, rollout.task)
    except (JudgeUnavailable, SkipGroup):
        raise
    except Exception as error:
        raise RewardError(
            f"{where} raised {type(error).__name__}: {error}",
            got=f"response {response!r}",
            remedy="the traceback above is the function's own; make it score every response",
        ) from error
    problem, remedy = _problem(value)
    if problem:
        raise RewardError(
            f"{where} returned {problem}",
            got=f"{value!r:.{SHOWN}} for response {response!r}",
            expected="one finite number",
            remedy=remedy,
        )
    return float(value)


def _problem(value: Any) -> tuple[str, str]:
    """What is wrong with a returned value, and the cure; two empty strings where nothing is."""
    if value is None:
        return "None", "end every branch of the function with a return"
    if isinstance(value, bool):
        return "a bool", "return float(…) if right is 1 and wrong is 0"
    if isinstance(value, list | tuple):
        return f"{len(value)} values", "a reward function judges one rollout; return its one score"
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
