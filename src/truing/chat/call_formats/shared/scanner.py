"""Shared by the formats: calls in a text, and JSON with the span of each value.

A region of the text contains a call; its ``choices`` are the spans that the model chose (names and values).
The rest of the region is call syntax.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from truing.chat.constrained.lark_literals import LarkLiterals
from truing.types.message import ToolCall, ToolSpec

Span = tuple[int, int]
"""A span of a text: its first character, and the first after it."""

Tools = Sequence[ToolSpec]
"""The callable tools; formats without value types read values by their schemas."""

MAX_DEPTH = 64
"""Maximum nesting of arguments; deeper ones would overflow the stack of later code."""
DUPLICATE_KEY = "a key is written twice"
TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"

ID = re.compile(r"[a-zA-Z0-9]{9}")
SPACE = re.compile(r"[ \t\n\r]*")


class MalformedCall(Exception):
    """A call that breaks its format.

    The text goes back to the model, so it quotes no tag and at most one character of the call: quoted
    tags would become special tokens.
    """

    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.at = at


@dataclass(frozen=True)
class CallRegion:
    """A span of a text that contains one call or a list of calls."""

    calls: tuple[ToolCall, ...]
    choices: tuple[Span, ...]  # names and values, in the order of the text
    end: int


@dataclass(frozen=True)
class CallFormat:
    """The call format of a model family."""

    description: str  # a description, for a model that wrote something else
    opening: str  # the regular expression of the start of a call
    read: Callable[
        [str, int, Tools], CallRegion
    ]  # returns the call whose opening ends there; raises Malformed
    closing: str | None  # the end of a malformed call; None: the end of the turn
    content: Callable[[str], str] = lambda outside: (
        outside
    )  # returns the content, from the text outside calls
    reasoning_tags: tuple[str, str] = (
        "<think>",
        "</think>",
    )  # the tags of reasoning, in which no call is read
    canonical_text: Callable[[ToolCall], str] = lambda call: (
        ""
    )  # distinguishes it from a format with the same syntax
    opening_tag: str = ""  # the opening tag, if a grammar for the rest exists
    grammar: Callable[[Tools, LarkLiterals], str] | None = (
        None  # of a call from the end of ``tag`` on, in Lark
    )


@dataclass(frozen=True)
class Value:
    """A JSON value and its span."""

    data: Any
    start: int
    end: int
    quote: int = 1  # characters of each quote around a text

    @property
    def chosen_span(self) -> Span:
        """The span that the model chose: quotes are call syntax, unless the text is empty."""
        quoted = self.quote if isinstance(self.data, str) and self.data != "" else 0
        return (self.start + quoted, self.end - quoted)


def skip(text: str, at: int) -> int:
    """Return the first position from ``at`` on that is not white space."""
    match = SPACE.match(text, at)
    assert match is not None  # an empty match counts
    return match.end()


def expect(text: str, at: int, sign: str, called: str | None = None) -> int:
    """Return the position after ``sign``, which must be at ``at``; a tag has to be called something else."""
    if not text.startswith(sign, at):
        actual = repr(text[at]) if at < len(text) else "the end"
        raise MalformedCall(f"expected {called or repr(sign)}, found {actual}", at)
    return at + len(sign)


def read_value(text: str, at: int) -> Value:
    """Return a JSON value; no object may have a key twice."""
    try:
        data, end = _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise MalformedCall(f"not JSON: {error.msg}", error.pos) from error
    except ValueError as error:
        raise MalformedCall(f"not JSON: {error}", at) from error
    except RecursionError as error:
        raise MalformedCall(TOO_DEEP, at) from error
    return Value(data, at, end)


def read_object(text: str, at: int) -> tuple[dict[str, Value], int]:
    """Return a JSON object whose values keep their spans, and the position after it."""
    members: dict[str, Value] = {}
    at = skip(text, expect(text, at, "{"))
    if text.startswith("}", at):
        return members, at + 1
    while True:
        expect(text, at, '"')
        key = read_value(text, at)
        if key.data in members:
            raise MalformedCall(DUPLICATE_KEY, at)
        value = members[key.data] = read_value(text, skip(text, expect(text, skip(text, key.end), ":")))
        at = skip(text, value.end)
        if text.startswith("}", at):
            return members, at + 1
        at = skip(text, expect(text, at, ","))


def read_call(text: str, at: int, arguments: str, *, may_have_id: bool = False) -> CallRegion:
    """Return a call that is one JSON object: its name, its arguments under that key, and nothing else."""
    members, end = read_object(text, at)
    for key in ("name", arguments):
        if key not in members:
            raise MalformedCall(f"the key {key!r} is missing", at)
    if len(members) > 2 + (may_have_id and "id" in members):
        raise MalformedCall(f"there are keys other than 'name' and {arguments!r}", at)
    name = members["name"]
    if not isinstance(name.data, str) or not name.data:
        raise MalformedCall("the name is not a text", name.start)
    inner, _ = read_object(text, members[arguments].start)
    values = [value for key, value in members.items() if key != arguments]
    choices = sorted(value.chosen_span for value in (*values, *inner.values()))
    call_id = _id(members["id"]) if "id" in members else None
    return CallRegion((tool_call(name.data, inner, at, call_id),), tuple(choices), end)


def tool_call(name: str, values: dict[str, Value], at: int, id: str | None = None) -> ToolCall:
    """Return a call with those values as arguments; raise if they cannot be stored."""
    arguments = {key: value.data for key, value in values.items()}
    if _deeper(arguments, MAX_DEPTH):
        raise MalformedCall(TOO_DEEP, at)
    try:
        _ENCODER.encode([name, arguments]).encode()
    except ValueError as error:  # NaN, infinity, a lone surrogate
        raise MalformedCall(f"not JSON: {error}", at) from error
    return ToolCall(name, arguments, id)


def _id(value: Value) -> str:
    """Return a call's id, in the form that templates render."""
    if not isinstance(value.data, str) or not ID.fullmatch(value.data):
        raise MalformedCall("the id is not nine letters and digits", value.start)
    return value.data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object within a value: each key once."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError(DUPLICATE_KEY)
    return members


def _deeper(data: Any, levels: int) -> bool:
    """Whether lists and objects nest deeper than the limit; level by level, without recursion."""
    layer = [data]
    while levels >= 0 and (nests := [item for item in layer if isinstance(item, dict | list)]):
        layer = [child for nest in nests for child in (nest.values() if isinstance(nest, dict) else nest)]
        levels -= 1
    return levels < 0


_DECODER = json.JSONDecoder(object_pairs_hook=_object)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
