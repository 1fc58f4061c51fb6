"""The episodes of BFCL's conversations: file systems, cars, trades, tickets, travel, messages.

Their classes come from the package ``bfcl-eval``. It cannot be installed together with Truing (it pins
numpy 1.26), but it needs none of its dependencies here: it only has to be on the path.
"""

import copy
import importlib
import json
import math
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from truing.envs.tools import Tool, ToolEpisode, ToolError
from truing.errors import RecipeError
from truing.types.message import AssistantMessage, Message, ToolCall, ToolSpec

from .rows import MultiTurn

CALL_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions of the published functions for unexpected arguments."""

MAX_DIGITS = 4000
"""Of a number that a function may compute; Python writes no longer ones."""

_PRECISION = threading.Lock()
"""Held while a function runs: mpmath has one precision for all threads, and its numbers are written by it."""

NOW_AVAILABLE = "These functions can be called from now on: {}. Can you do it now?"


class ApiState:
    """Objects of the published classes, in the state of a row."""

    def __init__(self, row: MultiTurn) -> None:
        published = _published("bfcl_eval.constants.executable_backend_config")
        self._objects: dict[str, Any] = {}
        for name in row.involved_classes:
            module = _published(published.CLASS_FILE_PATH_MAPPING[name])
            instance = self._objects[name] = getattr(module, name)()
            if name not in published.STATELESS_CLASSES:
                # a class that the row does not configure starts from its own defaults, as published
                scenario = copy.deepcopy(row.initial_config.get(name, {}))
                instance._load_scenario(scenario, long_context="long_context" in row.id)

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the result of a function as text."""
        owner = next(each for each in self._objects.values() if hasattr(each, name))
        try:
            _refuse_endless(name, arguments)
            with _PRECISION:
                return _written(getattr(owner, name)(**arguments))
        except CALL_ERRORS as error:
            raise ToolError(f"{type(error).__name__}: {error}") from error

    def state(self) -> dict[str, Any]:
        """Return the state that the published check compares: all public fields, as plain data."""
        return {name: _public(each) for name, each in self._objects.items()}


class Conversation(ToolEpisode):
    """One rollout: a turn without calls ends a request, and the next one follows."""

    def __init__(self, row: MultiTurn, specs: Sequence[ToolSpec]) -> None:
        self._api = ApiState(row)
        self._row = row
        self._specs = {spec.name: spec for spec in specs}
        self._results: list[str] = []
        self._called = False  # in this turn, a function that there is
        self._turns: list[dict[str, Any]] = []
        withheld = {name for names in row.missed_function.values() for name in names}
        super().__init__([self._tool(spec) for spec in specs if spec.name not in withheld])

    @property
    def callable_tools(self) -> tuple[ToolSpec, ...]:
        """Return the currently callable functions."""
        return tuple(spec for name, spec in self._specs.items() if name in self.tools)

    def reply(self, message: AssistantMessage) -> Sequence[Message]:
        """Return the results of calls, or the user's next request; nothing after the last."""
        answers = super().reply(message)
        if answers:
            return answers
        turn = {"called": self._called, "results": self._results, "state": self._api.state()}
        self._turns.append(turn)
        self._results, self._called = [], False
        turn = len(self._turns)
        return self._request(turn) if turn < len(self._row.question) else ()

    def outcome(self) -> Mapping[str, Any]:
        """Return for each ended turn whether it had a call, its calls' results, and its final state."""
        return {"turns": self._turns}

    def _request(self, turn: int) -> Sequence[Message]:
        """Return the user's message at the start of a turn; it introduces functions withheld until then."""
        added = [self._specs[name] for name in self._row.missed_function.get(turn, ())]
        if not added:
            return self._row.question[turn]
        self.tools |= {spec.name: self._tool(spec) for spec in added}
        schemas = ", ".join(json.dumps(spec.schema()) for spec in added)
        return (*self._row.question[turn], {"role": "user", "content": NOW_AVAILABLE.format(schemas)})

    def _tool(self, spec: ToolSpec) -> Tool:
        """Return a function as a tool; as published, it validates its arguments itself.

        The reference calls of scenario 173 do not follow the schema, and work.
        """
        return Tool(ToolSpec(spec.name, spec.description, {}), partial(self._execute, spec.name))

    def _execute(self, function: str, /, **arguments: Any) -> str:
        """Run a function and record its result for the check."""
        self._called = True
        result = self._api.call(function, arguments)
        self._results.append(result)
        return result


def reference_turns(turns: Sequence[Sequence[ToolCall]]) -> tuple[AssistantMessage, ...]:
    """Return the reference calls, one at a time, and a closing text for each turn."""
    messages: list[AssistantMessage] = []
    for calls in turns:
        messages += [AssistantMessage(calls=(call,)) for call in calls]
        messages.append(
            AssistantMessage("Done." if calls else "I cannot do this yet: a function or a detail is missing.")
        )
    return tuple(messages)


def same_turns(outcome: Mapping[str, Any], reference: Mapping[str, Any]) -> bool:
    """Whether a conversation agrees with the reference.

    As published: after each turn that needs calls the state is the same, this turn had a call, and the
    results so far hold those of the reference's turn. What a turn without reference calls did shows in
    the state that later turns are compared with.
    """
    turns, goals = outcome["turns"], reference["turns"]
    if len(turns) != len(goals):
        return False
    seen: Counter[str] = Counter()
    for turn, goal in zip(turns, goals, strict=True):
        seen.update(turn["results"])
        if goal["results"]:
            same = turn["state"] == goal["state"] and Counter(goal["results"]) <= seen
            if not (turn["called"] and same):
                return False
    return True


def _refuse_endless(name: str, arguments: Mapping[str, Any]) -> None:
    """Raise if a published function would compute for hours, in one step that no time limit ends.

    The reference conversations ask for 20 digits at most.
    """
    digits = arguments.get("precision", 0)
    if name == "power":
        base, exponent = (arguments.get(key, 0) for key in ("base", "exponent"))
        if isinstance(base, int) and isinstance(exponent, int):
            digits = base.bit_length() * abs(exponent) // 3
    if isinstance(digits, int | float) and abs(digits) > MAX_DIGITS:
        raise OverflowError(f"{name} with {digits:g} digits is too much, {MAX_DIGITS} are the most")


def _written(result: Any) -> str:
    """Return a result as text, as the published check compares it and models read it.

    Numbers of mpmath and Decimal are written with all their digits, since results are compared as text.
    """
    if isinstance(result, str):
        return result
    try:
        return json.dumps(result) if isinstance(result, dict) else str(result)
    except (TypeError, ValueError):  # JSON has no such value
        return str(result)


def _public(value: Any) -> Any:
    """Return a value as plain data; an object as its class and public fields, without its parent."""
    if isinstance(value, dict):
        return {str(key): _public(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_public(part) for part in value]
    if isinstance(value, set):
        return sorted(_public(part) for part in value)
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)  # JSON has no infinity; an overdrawn account must not crash
    if value is None or isinstance(value, str | bool | int | float):
        return value
    fields = {key: part for key, part in vars(value).items() if not key.startswith("_") and key != "parent"}
    return _public(fields)


def _published(module: str) -> Any:
    """Return a module of bfcl-eval, or raise with how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise RecipeError(
            "the conversations of the environment 'bfcl' need the code of the package bfcl-eval",
            got=error,
            expected="bfcl_eval on the path; it cannot be installed beside Truing, and need not be",
            remedy="pip download --no-deps bfcl-eval==2026.3.23, and put the .whl file on PYTHONPATH",
        ) from error
