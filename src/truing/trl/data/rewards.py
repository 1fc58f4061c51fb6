"""TRL's reward functions, called once for all rollouts of a collection."""

import asyncio
import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from truing.envs.conversations import column_notes
from truing.errors import RewardError
from truing.rewards import NotApplicable, Rewards
from truing.trl.data.env import RowsEnv
from truing.trl.data.signatures import check_signature, parameter_names
from truing.types.rollout import Rollout, Task

BatchFunction = Callable[..., Any]
"""TRL's reward function: ``f(prompts, completions, completion_ids, **columns) -> list[float | None]``."""

RESERVED = ("prompt", "completion", "completion_ids")
"""Columns that are not passed under their own name."""

ALWAYS = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")
"""Arguments that each function gets, in addition to the columns."""

UNNAMED = "no reward function names, and that change nothing else of the training"

TAKEN = {*ALWAYS, "environments"} - {*RESERVED}
"""Columns that such an argument would hide."""


@dataclass(repr=False)
class Scorer:
    """Calls all reward functions with the rollouts of a collection, and keeps the scores until the next.

    ``extras`` are the arguments that TRL adds: ``trainer_state``, ``log_extra`` and ``log_metric``.
    """

    functions: Mapping[str, BatchFunction]
    env: RowsEnv
    tokenizer: Any = None  # decodes single turns, as TRL does: without special tokens
    extras: Mapping[str, Any] = field(default_factory=dict[str, Any])
    _scores: dict[str, Mapping[str, float | None]] = field(
        default_factory=dict[str, Mapping[str, float | None]]
    )

    def prepare(self, rollouts: Sequence[Rollout]) -> None:
        """Score the rollouts."""
        self._scores.clear()
        if rollouts:
            self._scores |= self._scored(rollouts, self.functions, self.extras)
            self.env.release(rollouts)

    def _scored(
        self, rollouts: Sequence[Rollout], functions: Mapping[str, BatchFunction], extras: Mapping[str, Any]
    ) -> dict[str, Mapping[str, float | None]]:
        """Return the scores of each rollout, by its id."""
        scores = _called_all(functions, {**self._arguments(rollouts), **extras}, len(rollouts))
        return {
            rollout.rollout_id: {name: each[index] for name, each in scores.items()}
            for index, rollout in enumerate(rollouts)
        }

    def score(self, name: str, rollout: Rollout) -> float | NotApplicable:
        """Return a function's score of a rollout; one that was not prepared is scored alone.

        Such a rollout is graded before the training or again, for a check: it logs nothing.
        """
        scores = self._scores
        if rollout.rollout_id not in scores:
            silent = {"log_extra": _log_nothing, "log_metric": _log_nothing}
            scores = self._scored([rollout], {name: self.functions[name]}, {**self.extras, **silent})
        value = scores[rollout.rollout_id][name]
        return NotApplicable() if value is None else value

    def check_signatures(self) -> None:
        """Raise for a function that cannot be called with the arguments that it gets."""
        columns = [name for name in self.env.columns if name not in RESERVED]
        owned = [] if self.env.environments([]) is None else ["environments"]
        given = dict.fromkeys([*ALWAYS, *owned, *columns])
        for name, function in self.functions.items():
            check_signature(name, function, [*given])

    def column_notes(self, rows: Iterable[Mapping[str, Any]], dataset: str) -> list[str]:
        """Return a note on columns of a data set that no function names and that change no task."""
        read = self.env.columns_read.union(*map(parameter_names, self.functions.values()))
        return column_notes(rows, read, dataset, UNNAMED)

    def _arguments(self, rollouts: Sequence[Rollout]) -> dict[str, Any]:
        """Return the arguments of a call: lists with one entry per rollout."""
        rows = [self.env.rows[rollout.task.task_id] for rollout in rollouts]
        columns = {name: [row.get(name) for row in rows] for name in self.env.columns if name not in RESERVED}
        text = [self.env.prompts[rollout.task.task_id].is_text for rollout in rollouts]
        environments = self.env.environments(rollouts)
        return {
            **columns,
            **({} if environments is None else {"environments": environments}),
            "prompts": [
                said[0]["content"] if is_text else [dict(message) for message in said]
                for said, is_text in zip((each.task.messages for each in rollouts), text, strict=True)
            ],
            "completions": [
                self._completion(rollout, is_text) for is_text, rollout in zip(text, rollouts, strict=True)
            ],
            "completion_ids": [completion_ids(rollout) for rollout in rollouts],
        }

    def _completion(self, rollout: Rollout, is_text: bool) -> Any:
        """Return the text of a completion, or its messages."""
        if self.env.has_episodes:
            return [dict(message) for message in rollout.messages]
        decoded = self.tokenizer.decode(completion_ids(rollout), skip_special_tokens=True)
        return decoded if is_text else [{"role": "assistant", "content": decoded}]


def rewards_of(scorer: Scorer, weights: Sequence[float]) -> Rewards:
    """Return the reward functions of a scorer for an environment, with their weights."""
    named = zip(scorer.functions, weights, strict=True)
    return {name: (_Reward(name, scorer), weight) for name, weight in named}


class _Reward:
    """One of TRL's functions as Truing calls it: after ``prepare``, for each rollout."""

    def __init__(self, name: str, scorer: Scorer) -> None:
        self._name, self._scorer = name, scorer
        self.__qualname__ = name  # in error messages
        self.source_of = scorer.functions[name]
        self.prepare = scorer.prepare  # the same for all functions of the scorer, so it is called once

    def __call__(self, rollout: Rollout, task: Task) -> float | NotApplicable:
        return self._scorer.score(self._name, rollout)


def completion_ids(rollout: Rollout) -> list[int]:
    """Return the ids after the prompt: of the turns, and of the replies between them."""
    ids = rollout.turns[0].token_ids.tolist()
    for _, turn in pairwise(rollout.turns):
        ids += turn.context_ids.tolist() + turn.token_ids.tolist()
    return ids


def function_name(function: BatchFunction) -> str:
    """Return the name of a function, as TRL logs it."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


async def _gathered(waiting: Iterable[Awaitable[Any]]) -> list[Any]:
    """Return the results of awaitables, or what they raised."""
    return await asyncio.gather(*waiting, return_exceptions=True)


def _called_all(
    functions: Mapping[str, BatchFunction], arguments: Mapping[str, Any], count: int
) -> dict[str, list[float | None]]:
    """Return each function's scores; async functions run at the same time, after the others."""
    results = {name: _called(name, function, arguments) for name, function in functions.items()}
    waiting = {name: result for name, result in results.items() if inspect.isawaitable(result)}
    if waiting:
        with ThreadPoolExecutor(1) as thread:  # a notebook's thread already runs a loop
            awaited = thread.submit(asyncio.run, _gathered(waiting.values())).result()
        for name, result in zip(waiting, awaited, strict=True):
            if isinstance(result, BaseException):
                raise _failed(name, result, arguments) from result
            results[name] = result
    return {name: _checked(name, result, count) for name, result in results.items()}


def _log_nothing(name: str, values: Any) -> None:
    """Stand for ``log_extra`` and ``log_metric``."""


def _called(name: str, function: BatchFunction, arguments: Mapping[str, Any]) -> Any:
    try:
        return function(**arguments)
    except Exception as error:
        raise _failed(name, error, arguments) from error


def _failed(name: str, error: BaseException, arguments: Mapping[str, Any]) -> RewardError:
    kind = "texts" if isinstance(arguments["completions"][0], str) else 'messages: completion[0]["content"]'
    return RewardError(
        f"reward function {name!r} raised {type(error).__name__}: {error}",
        expected="a list with one number or None per completion",
        remedy=f"its arguments are lists with an entry per completion; completions are {kind}, as the prompts"
        " are",
    )


def _checked(name: str, result: Any, count: int) -> list[float | None]:
    """Return a function's result as floats; NaN and None both mean that it does not apply."""
    if not hasattr(result, "__len__") or isinstance(result, str | Mapping) or len(result) != count:
        raise RewardError(
            f"reward function {name!r} returned {type(result).__name__} {result!r:.100}",
            expected=f"a list of {count}, a number or None for each completion",
        )
    if texts := [value for value in result if isinstance(value, str | bytes)]:
        raise RewardError(
            f"reward function {name!r} returned something other than a number",
            got=f"{type(texts[0]).__name__} {texts[0]!r:.100}",
            expected="a number or None for each completion",
        )
    try:
        scores = [None if value is None else float(value) for value in result]
    except (TypeError, ValueError) as error:
        raise RewardError(
            f"reward function {name!r} returned something other than a number", got=error
        ) from error
    return [None if score is not None and math.isnan(score) else score for score in scores]
