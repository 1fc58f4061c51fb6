"""The rewards that a recipe names, as reward functions."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from truing.envs.dataset.config import DatasetConfig, RewardConfig
from truing.envs.imported import import_object
from truing.errors import RecipeError
from truing.rewards import (
    AnswerFormat,
    RewardFn,
    Rewards,
    exact_match,
    extract_answer,
    number_match,
    read_number,
    without_reasoning,
)
from truing.rewards.judge import Judge
from truing.types.rollout import Rollout, Task
from truing.utils.patterns import Pattern, PatternError


def make_rewards(config: DatasetConfig) -> Rewards:
    """Return the reward functions of a recipe with their weights.

    Raises:
        RecipeError: A pattern is not a regular expression, or a function cannot be imported.
    """
    return {name: (_function(name, reward, config), reward.weight) for name, reward in config.rewards.items()}


def answer_checks(config: DatasetConfig) -> list[Callable[[Any], None]]:
    """Return what each reward requires of a row's answer; none if no reward reads it.

    Each raises ``ValueError`` with the requirement.
    """
    checks: list[Callable[[Any], None]] = []
    for reward in config.rewards.values():
        if reward.kind == "number":
            checks.append(_check_number)
        elif reward.kind in ("exact", "judge") or (reward.kind == "regex" and _has_group(reward)):
            checks.append(_check_text)
    return checks


def _function(name: str, reward: RewardConfig, config: DatasetConfig) -> RewardFn:
    """Return one reward as a function."""
    if reward.kind == "exact":
        return partial(_exact, reward.answer_format or "line")
    if reward.kind == "number":
        return partial(_number, reward.tolerance or 0.0)
    if reward.kind == "regex":
        return partial(_regex, _compiled(name, reward))
    if reward.kind == "judge":
        assert config.judge is not None  # the config refuses it
        return Judge(config.judge, lambda task: " or ".join(answers(task.answer)))
    function = import_object(reward.kind, "reward function")
    if not callable(function):
        raise RecipeError(
            f"recipe key 'env.rewards.{name}.kind' names no function",
            got=f"{reward.kind} is a {type(function).__name__}",
            expected="a function (rollout, task) -> float",
        )
    return cast("RewardFn", function)  # what it returns is checked at each call


def answers(answer: Any) -> list[str]:
    """Return the right answers as texts: one, or those of a list.

    Raises:
        ValueError: It is neither text, nor a number, nor a list of these.
    """
    each = answer if isinstance(answer, list | tuple) else [answer]
    if not each or not all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in each):
        raise ValueError("text, a number, or a list of these")
    return [str(one) for one in each]


def _exact(answer_format: AnswerFormat, rollout: Rollout, task: Task) -> float:
    """Return 1.0 if the answer of a response is a right one, without case, punctuation and articles."""
    answer = extract_answer(rollout.text, answer_format)
    return 0.0 if answer is None else exact_match(answer, answers(task.answer))


def _number(tolerance: float, rollout: Rollout, task: Task) -> float:
    """Return 1.0 if the final number of a response is a right one."""
    return max(number_match(rollout.text, answer, tolerance) for answer in answers(task.answer))


def _regex(pattern: Pattern, rollout: Rollout, task: Task) -> float:
    """Return 1.0 if a response has the pattern; with a group, if its last match is the right answer."""
    matches = pattern.find_all(without_reasoning(rollout.text))
    if not matches or not pattern.groups:
        return float(bool(matches))
    return exact_match(matches[-1][1] or "", answers(task.answer))


def _compiled(name: str, reward: RewardConfig) -> Pattern:
    """Return the pattern of a reward."""
    try:
        return Pattern(reward.pattern or "")
    except PatternError as error:
        raise RecipeError(
            f"recipe key 'env.rewards.{name}.pattern' is not a regular expression",
            got=f"{reward.pattern!r}: {error}",
            expected="a pattern of Python",
        ) from error


def _has_group(reward: RewardConfig) -> bool:
    """Whether the pattern of a reward has a group."""
    return bool(_compiled("", reward).groups)


def _check_text(answer: Any) -> None:
    answers(answer)


def _check_number(answer: Any) -> None:
    for text in answers(answer):
        if read_number(text) is None:
            raise ValueError("a number, such as 18, 1,234.5 or 3/4")
