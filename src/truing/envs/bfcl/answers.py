"""Single-turn tasks: are these the right calls? The rules are those of BFCL's check by syntax tree.

Text is compared without case, blanks and the marks ``, . / - _ * ^``. A parameter may be left out where
its values hold an empty text. Calls may come in any order.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from truing.messages import Message, Said, ToolCall

_IGNORED = re.compile(r"[ ,./\-_*^]")

Call = Mapping[str, Any]
"""``name`` and ``arguments``; of a right call, the arguments are lists of values that they may have."""


class AnswerEpisode:
    """One turn, and it is over: nothing is run."""

    def __init__(self) -> None:
        self._said = Said(problems=("no turn was finished",))

    def reply(self, said: Said) -> Sequence[Message]:
        """Nothing: the episode is over."""
        self._said = said
        return ()

    def outcome(self) -> Mapping[str, Any]:
        """The calls that were made, and those that could not be read."""
        calls = [{"name": call.name, "arguments": dict(call.arguments)} for call in self._said.calls]
        return {"calls": calls, "problems": list(self._said.problems)}


def right_calls(outcome: Mapping[str, Any], answers: Sequence[Call]) -> bool:
    """Whether an outcome holds all right calls and nothing else."""
    return not outcome["problems"] and _matches(outcome["calls"], answers)


def first_right(answers: Sequence[Call]) -> Said:
    """The right calls with the first value that each argument may have."""
    if not answers:
        return Said("None of these functions can do this.")
    return Said(calls=tuple(ToolCall(answer["name"], _first(answer["arguments"])) for answer in answers))


def _matches(calls: Sequence[Call], answers: Sequence[Call]) -> bool:
    """Whether calls and answers can be paired, each with one other."""
    if not calls or not answers:
        return not calls and not answers
    return any(
        _is_right(calls[0], answer) and _matches(calls[1:], [*answers[:i], *answers[i + 1 :]])
        for i, answer in enumerate(answers)
    )


def _is_right(call: Call, answer: Call) -> bool:
    """Whether a call is the function, with arguments that it may have."""
    return call["name"] == answer["name"] and _same(call["arguments"], answer["arguments"])


def _same(value: Any, wanted: Any) -> bool:
    """Whether a value is the wanted one; of a wanted object, each value is a list of what it may be."""
    if isinstance(wanted, dict):
        return (
            isinstance(value, Mapping)
            and all(key in wanted for key in value)
            and all(_allows(value, key, values) for key, values in wanted.items())
        )
    if isinstance(wanted, list):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(_same, value, wanted))
    if isinstance(wanted, str):
        return isinstance(value, str) and _plain(value) == _plain(wanted)
    return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted


def _allows(given: Mapping[str, Any], key: str, values: Sequence[Any]) -> bool:
    """Whether what is given under a key is one of its values, or may be left out and is."""
    return any(_same(given[key], value) for value in values) if key in given else "" in values


def _plain(text: str) -> str:
    """Text as it is compared."""
    return _IGNORED.sub("", text).lower().replace("'", '"')


def _first(wanted: Any) -> Any:
    """The first of the wanted values; a parameter whose first value is empty is left out."""
    if isinstance(wanted, dict):
        return {key: _first(values[0]) for key, values in wanted.items() if values[0] != ""}
    return [_first(part) for part in wanted] if isinstance(wanted, list) else wanted
