"""Grading of single-turn tasks, with the verdict of BFCL's check by syntax tree.

Source: ``ast_checker.py`` of bfcl-eval 2026.3.23, its rules for Python. Text is compared without case, blanks
and the marks ``, . / - _ * ^``, and calls may come in any order. Its quirks are kept, since its verdicts
are published: types are Python's, so that 2.0 is no integer; objects within objects are compared as they
are; of several answers that would do, a call takes the first.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from truing.types.message import AssistantMessage, Message, ToolCall, ToolSpec

TYPES = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}
"""Type of a JSON schema → of Python. A schema without a type is of BFCL's ``any``, which is a text."""

MAY_BE_OMITTED = ""
"""Among the values of an argument, it marks the argument as optional."""

_IGNORED = re.compile(r"[ ,./\-_*^]")

Call = Mapping[str, Any]
"""``name`` and ``arguments``; of a right call, the arguments are lists of values that they may have."""

Schema = Mapping[str, Any]
"""The JSON schema of a parameter, or of all parameters of a function."""


class SingleTurnEpisode:
    """An episode of one turn: no call runs."""

    def __init__(self) -> None:
        self._message = AssistantMessage(parse_errors=("no turn was finished",))

    def reply(self, message: AssistantMessage) -> Sequence[Message]:
        """Return nothing: the episode is over."""
        self._message = message
        return ()

    def outcome(self) -> Mapping[str, Any]:
        """Return the calls, and the malformed ones."""
        calls = [{"name": call.name, "arguments": dict(call.arguments)} for call in self._message.calls]
        return {"calls": calls, "problems": list(self._message.parse_errors)}


def calls_are_right(outcome: Mapping[str, Any], answers: Sequence[Call], tools: Sequence[ToolSpec]) -> bool:
    """Whether an outcome has all right calls and no others."""
    schemas = {tool.name: tool.parameters for tool in tools}
    left = list(outcome["calls"])
    if outcome["problems"] or len(left) != len(answers):
        return False
    for answer in answers:
        schema = schemas[answer["name"]]
        right = next((i for i, call in enumerate(left) if _is_right(call, answer, schema)), None)
        if right is None:
            return False
        del left[right]
    return True


def first_right_calls(answers: Sequence[Call], tools: Sequence[ToolSpec]) -> AssistantMessage:
    """Return the right calls with the first value that each argument may have."""
    if not answers:
        return AssistantMessage("None of these functions can do this.")
    schemas = {tool.name: tool.parameters for tool in tools}
    return AssistantMessage(
        calls=tuple(
            ToolCall(answer["name"], _first(answer["arguments"], schemas[answer["name"]]))
            for answer in answers
        )
    )


def _is_right(call: Call, answer: Call, schema: Schema) -> bool:
    """Whether a call names the function, with all required and no unknown arguments."""
    arguments, accepted = call["arguments"], answer["arguments"]
    known = schema.get("properties", {})
    return (
        call["name"] == answer["name"]
        and all(name in arguments for name in schema.get("required", ()))
        and all(name in known and name in accepted for name in arguments)
        and all(_is_one_of(value, accepted[name], known[name]) for name, value in arguments.items())
        and all(name in arguments or MAY_BE_OMITTED in values for name, values in accepted.items())
    )


def _is_one_of(value: Any, options: Sequence[Any], schema: Schema) -> bool:
    """Whether an argument has an allowed type and an allowed value."""
    kind = TYPES[schema.get("type", "string")]
    items = TYPES[schema.get("items", {}).get("type", "string")] if kind is list else None
    if kind is float and type(value) is int:
        value = float(value)
    element_type = _type_of(options)
    if type(value) is not kind:  # a variable instead of a value, which the answers name
        return type(value) is element_type and value in options
    if kind is list and not any(_may_hold(option, value, items) for option in options):
        return False
    if element_type not in (None, kind):
        return value in options
    if kind is dict:
        return any(_same_object(value, option) for option in options)
    if items is dict:
        return any(_same_objects(value, option) for option in options)
    if kind is list:
        return _plain_texts(value) in map(_plain_texts, options)
    return _plain_text(value) in [
        _plain_text(option) for option in options if type(option) is kind or kind is not str
    ]


def _may_hold(option: Any, value: Sequence[Any], items: type | None) -> bool:
    """Whether the types of a list's items are those of its schema, or those of an option."""
    return not isinstance(option, list) or all(type(item) in (items, _type_of(option)) for item in value)


def _type_of(options: Sequence[Any]) -> type | None:
    """Return the type of the first value."""
    return next((type(option) for option in options if option != MAY_BE_OMITTED), None)


def _same_objects(value: Sequence[Any], option: Any) -> bool:
    """Whether a list of objects is that of an option, object by object."""
    return len(value) == len(option) and all(map(_same_object, value, option))


def _same_object(value: Any, option: Any) -> bool:
    """Whether an object is that of an option, whose values are lists of what each may be."""
    return (
        isinstance(value, dict)
        and isinstance(option, dict)
        and all(key in option for key in value)
        and all(_plain_text(part) in map(_plain_text, option[key]) for key, part in value.items())
        and all(key in value or MAY_BE_OMITTED in parts for key, parts in option.items())
    )


def _plain_texts(values: Sequence[Any]) -> list[Any]:
    """Return a list in comparable form; an optional argument may also be an empty list."""
    return [_plain_text(value) for value in values]


def _plain_text(value: Any) -> Any:
    """Return text in comparable form; other values unchanged."""
    return _IGNORED.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value


def _first(values: Mapping[str, Sequence[Any]], schema: Schema) -> dict[str, Any]:
    """The first of the values of each argument, less those that may be left out."""
    known, required = schema.get("properties", {}), schema.get("required", ())
    return {
        name: _value(next((option for option in options if option != MAY_BE_OMITTED), MAY_BE_OMITTED))
        for name, options in values.items()
        if name in required
        or (options[0] != MAY_BE_OMITTED and (name in known or MAY_BE_OMITTED not in options))
    }


def _value(option: Any) -> Any:
    """An option as a value: an object, or each object of a list, with the first of its parts."""
    if isinstance(option, list):
        return [_parts(part) if isinstance(part, dict) else part for part in option]
    return _parts(option) if isinstance(option, dict) else option


def _parts(option: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """An object with the first of each part's values; objects within it are values as they are."""
    return {key: parts[0] for key, parts in option.items() if parts[0] != MAY_BE_OMITTED}
