"""Calls reward functions on a rollout. A function that fails is an error, never a reward of 0."""

import inspect
import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from truing.errors import JudgeUnavailable, NoReward, RewardError, SkipGroup
from truing.types.rollout import Rollout, Task
from truing.utils.deep_copy import deep_copy
from truing.utils.format import text_of_error
from truing.utils.time_limit import TimeLimitExceeded
from truing.utils.workspaces import workspace_of


@dataclass(frozen=True)
class PerTurn:
    """The result of a reward function that judges turns: a finite number per turn, in order."""

    scores: Sequence[float]

    def __post_init__(self) -> None:
        scores: Any = self.scores  # from user code, so unchecked
        if not isinstance(scores, Sequence | np.ndarray):
            raise RewardError(
                "truing.PerTurn needs the scores of turns in order",
                got=f"a {type(scores).__name__}",
                expected="a list of numbers",
            )


@dataclass(frozen=True)
class NotApplicable:
    """The result of a reward function that does not judge this rollout: it has no such part."""


class GradeResult(NamedTuple):
    """The reward of a rollout, with its parts."""

    reward: float  # the weighted sum of all parts that apply
    parts: dict[str, float]  # as returned, not weighted; the sum over turns
    turn_rewards: tuple[float, ...] = ()  # the weighted share of each turn; empty without PerTurn


RewardFn = Callable[[Rollout, Task], float | PerTurn | NotApplicable]
"""Judges one rollout: a finite number, or one per turn; higher is better.

A function with a third parameter named ``workspace`` gets there the folder that the rollout's program worked
in, a ``pathlib.Path``.

An object that judges several rollouts together has a method ``prepare``, called with all rollouts of a
collection, group by group, before the first of them is judged.
"""

Rewards = Mapping[str, tuple[RewardFn, float]]
"""The reward functions of a task: name → (function, weight). A part of weight 0 is recorded only."""

LARGEST = 1e18
"""The largest reward: its square is finite in float32, so a standard deviation is."""

SHOWN = 300
"""Characters of a response in an error message."""


def reward_range(rewards: Rewards) -> tuple[float, float]:
    """Return the smallest and the largest reward: the sum of all weights below 0, and of all above 0.

    Parts are assumed to lie in [0, 1]; a part with a weight below 0 is a penalty.
    """
    weights = [weight for _, weight in rewards.values()]
    return math.fsum(min(weight, 0.0) for weight in weights), math.fsum(
        max(weight, 0.0) for weight in weights
    )


def prepare(rewards: Rewards, rollouts: Sequence[Rollout]) -> None:
    """Give rollouts that are about to be graded to the functions that judge several together, once each."""
    methods = [getattr(function, "prepare", None) for function, _ in rewards.values()]
    for method in dict.fromkeys(method for method in methods if method is not None):
        method(rollouts)


def grade(rollout: Rollout, rewards: Rewards) -> GradeResult:
    """Return the reward of a rollout by all reward functions.

    Args:
        rollout: The rollout; each function also gets its task.
        rewards: name → (function, weight).

    Raises:
        NoReward: No function applies to the rollout.
        RewardError: A function raised (its traceback is chained), or returned something other than a
            finite number. A bool is an error, since a comparison is easily returned by mistake.
    """
    if not rewards:
        raise RewardError(
            "there is no reward function", remedy="give at least one: name → (function, weight)"
        )
    results = {name: _call(name, function, rollout) for name, (function, _) in rewards.items()}
    scores = {name: score for name, score in results.items() if not isinstance(score, NotApplicable)}
    if not scores:
        raise NoReward(
            f"no reward function applies to task {rollout.task.task_id!r}",
            got=", ".join(f"{name}: none" for name in rewards),
            remedy="let one of them score every rollout",
        )
    weights = {name: weight for name, (_, weight) in rewards.items()}
    try:
        parts = {
            name: math.fsum(score) if isinstance(score, tuple) else score for name, score in scores.items()
        }
        total = math.fsum(weights[name] * part for name, part in parts.items())
        turns = _by_turn(scores, weights)
        finite = all(abs(each) <= LARGEST for each in (total, *turns))
    except OverflowError:  # raised by fsum
        finite = False
    if not finite:
        raise RewardError(
            "the weighted sum of rewards is not finite, or too large",
            got=f"scores {scores}, weights {weights}",
            expected=f"at most {LARGEST:g}",
        )
    return GradeResult(total, parts, turns)


def _by_turn(
    scores: Mapping[str, float | tuple[float, ...]], weights: Mapping[str, float]
) -> tuple[float, ...]:
    """Return the weighted sum per turn over the functions that judge turns."""
    weighted = [
        [weights[name] * score for score in each] for name, each in scores.items() if isinstance(each, tuple)
    ]
    return tuple(math.fsum(turn) for turn in zip(*weighted, strict=True))


def _call(name: str, function: RewardFn, rollout: Rollout) -> float | tuple[float, ...] | NotApplicable:
    """Return one function's reward of a rollout, or those of its turns, checked."""
    where = f"reward {name!r} ({_title(function)}) of task {rollout.task.task_id!r}"
    response = rollout.text if len(rollout.text) <= SHOWN else rollout.text[:SHOWN] + " […]"
    own = replace(rollout, answers=())  # whose histories are long, and which no grader reads
    copy = deep_copy(own, f"the rollout of task {rollout.task.task_id}")  # a grader may change it
    workspace = {"workspace": _workspace(where, rollout)} if takes_workspace(function) else {}
    try:
        value = function(copy, copy.task, **workspace)
    except (JudgeUnavailable, SkipGroup):
        raise
    except (KeyboardInterrupt, TimeLimitExceeded):
        raise
    except BaseException as error:  # sys.exit(0) would end training as if it had finished
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise RewardError(
            f"{where} raised {type(error).__name__}: {text_of_error(error)}"
            f" ({frame.filename}:{frame.lineno})",
            got=f"response {response!r}",
            remedy="make it score every response",
        ) from error
    if isinstance(value, NotApplicable):
        return value
    each = value.scores if isinstance(value, PerTurn) else [value]
    expected = "one finite number"
    problem, remedy = next((pair for pair in map(_problem, each) if pair[0]), ("", ""))
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


def takes_workspace(function: Any) -> bool:
    """Whether a reward function has a parameter for the workspace of a program."""
    try:
        return "workspace" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a built-in function without a signature
        return False


def _workspace(where: str, rollout: Rollout) -> Path:
    """Return the workspace of a rollout's program."""
    path = workspace_of(rollout.outcome)
    if path is None:
        kind = NoReward if "workspace" in rollout.outcome else RewardError  # another program has removed it
        raise kind(
            f"{where} takes a workspace, and the rollout has none",
            got=f"the outcome {dict(rollout.outcome)!r:.{SHOWN}}",
            expected='a rollout of env.name = "program", in the run and at the step that made it',
            remedy="what a later grading needs is in rollout.outcome: env.files puts files there",
        )
    return path


def _problem(value: Any) -> tuple[str, str]:
    """Return the problem of a returned value, and its remedy; two empty strings if it is valid."""
    if value is None:
        return "None", "end every branch of the function with a return"
    if isinstance(value, bool):
        return "a bool", "return float(…) if right is 1 and wrong is 0"
    if isinstance(value, list | tuple):
        return (
            f"{len(value)} values",
            "return one score, or truing.PerTurn with one score per turn",
        )
    if not isinstance(value, Real):
        return f"a {type(value).__name__}", "return a plain number, e.g. by .item() or float(…)"
    if not _finite(value):
        return "a number that is not finite", "bound the score, and guard divisions and logarithms"
    return "", ""


def _finite(number: Real) -> bool:
    """Whether a number is finite as a float."""
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer beyond the largest float
        return False


def _title(function: RewardFn) -> str:
    """Return the qualified name of a function."""
    return getattr(function, "__qualname__", repr(function))
