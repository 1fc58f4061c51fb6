"""What a tool's function is called with, and which functions can be tools."""

from collections.abc import Callable
from datetime import date
from enum import Enum

import pytest
from pydantic import BaseModel

from truing.envs.tools import Tool, ToolError, tool
from truing.errors import DataError
from truing.types.message import ToolSpec


class Room(Enum):
    """Where to meet."""

    NORTH = "north"
    SOUTH = "south"


class Guest(BaseModel):
    """Who comes."""

    name: str
    chairs: int = 1


@tool
def repeat(text: str, times: int, share: float = 1.0, most: int | None = None) -> str:
    """Repeat a text."""
    return f"{text * times} {share!r} {(most or 9) * '.'}"


def test_a_whole_number_written_with_a_point_is_an_integer_to_the_function():
    assert repeat.run({"text": "a", "times": 2.0, "share": 2.0, "most": 3.0}) == "aa 2.0 ..."


@pytest.mark.parametrize(
    ("schema", "given"),
    [({"type": ["integer", "null"]}, "3"), (True, "3.0"), ({"anyOf": [{"type": "integer"}, True]}, "3")],
)
def test_any_json_schema_will_do(schema, given):
    spec = ToolSpec("f", "", {"type": "object", "properties": {"x": schema}})
    assert Tool(spec, lambda x: repr(x)).run({"x": 3.0}) == given


def test_a_broken_number_is_reported_to_the_model():
    with pytest.raises(ToolError, match="times"):
        repeat.run({"text": "a", "times": 2.5})


@tool
def book(day: date, room: Room, guests: list[Guest], tags: set[str] = frozenset()) -> str:
    """Book a room."""
    return f"{day:%d %B} {room.name} {sum(guest.chairs for guest in guests)} {sorted(tags)}"


BOOKED = {"day": "2026-11-21", "room": "south", "guests": [{"name": "Ada", "chairs": 2.0}]}


def test_arguments_come_in_the_types_of_the_function():
    assert book.run(BOOKED) == "21 November SOUTH 2 []"
    assert book.run(BOOKED | {"tags": ["b", "a"]}) == "21 November SOUTH 2 ['a', 'b']"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"day": "tomorrow"}, "day: Input should be a valid date"),
        ({"room": "east"}, "room: 'east' is not one of"),
        ({"guests": [{"chairs": 1}]}, "guests.0: 'name' is a required property"),
    ],
)
def test_an_argument_of_another_type_is_reported_to_the_model(change, told):
    with pytest.raises(ToolError, match=told):
        book.run(BOOKED | change)


async def later(word: str) -> str:
    """Answer later."""
    return word


def by_place(word: str, /) -> str:
    """Answer by place."""
    return word


def untyped(word) -> str:
    """Answer anything."""
    return word


def hidden(_word: str) -> str:
    """Answer what is hidden."""
    return _word


def called(act: Callable[[], str]) -> str:
    """Answer by an act."""
    return act()


def silent(word: str) -> str:
    return word


@pytest.mark.parametrize(
    ("function", "got"),
    [
        (later, "async"),
        (by_place, "no name to call it by"),
        (untyped, "word without a type"),
        (hidden, "_word, which begins with an underscore"),
        (called, "Callable"),
        (silent, "no docstring"),
    ],
)
def test_a_function_that_no_model_can_call_is_refused(function, got):
    with pytest.raises(DataError, match="cannot be a tool") as caught:
        tool(function)
    assert got in str(caught.value)
