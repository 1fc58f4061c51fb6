"""All problems of a table that a user wrote, in one error: what, got, expected and remedy of each key."""

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from truing.errors import RecipeError

Model = TypeVar("Model", bound=BaseModel)
Location = tuple[str | int, ...]
UnknownKey = Callable[[str, object], RecipeError]
"""The error for a dotted key that a table does not have, and its value."""

PLACEHOLDER = "?"
"""Stands for a missing value while the rest of a table is read."""

EXPECTED_BY_ERROR = {
    "dict_type": "a table",
    "model_type": "a table",
    "string_type": "text in quotes",
    "int_": "a whole number",
    "float_": "a number",
    "bool_": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
}
"""The expected value, by pydantic's kind of error."""


class Contradictions(ValueError):
    """What the keys of a table require of each other and do not have, a sentence each."""

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__("; ".join(texts))
        self.texts = texts


@dataclass(frozen=True)
class _Problem:
    """What is wrong at one place of a table."""

    location: Location
    kind: str  # pydantic's, or "contradiction"
    expected: str
    got: Any = None

    @property
    def key(self) -> str:
        return ".".join(map(str, self.location))


def validated(model: type[Model], table: Mapping[str, Any], unknown: UnknownKey, prefix: str = "") -> Model:
    """Return a table as its model.

    Raises:
        RecipeError: With all problems of the table, each key below ``prefix``.
    """
    try:
        return model.model_validate(table)
    except ValidationError:
        found = problems(model, table, unknown, prefix)
    raise RecipeError.joined(found)  # outside: pydantic's text repeats the same in its own terms


def problems(
    model: type[BaseModel], table: Mapping[str, Any], unknown: UnknownKey, prefix: str = ""
) -> list[RecipeError]:
    """Return all problems of a table, unknown keys first: they may be misspelled ones.

    The table is read again without the keys that have a problem, for what other keys require of each other;
    a sentence that names a key with a problem follows from that problem, and is left out.
    """
    found: list[_Problem] = []
    rest = deepcopy(dict(table))
    while new := [problem for problem in _read(model, rest) if not _follows(problem, found)]:
        found += new
        for problem in new:
            _leave_out(rest, problem)
    found.sort(key=lambda problem: problem.kind != "extra_forbidden")
    return [_error(problem, model, unknown, prefix) for problem in found]


def _read(model: type[BaseModel], table: Mapping[str, Any]) -> list[_Problem]:
    """Return the problems that one reading of a table shows, one for all options of a union."""
    try:
        model.model_validate(table)
    except ValidationError as error:
        located = [(details, _location(details, table)) for details in error.errors()]
    else:
        return []
    by_place: dict[Location, list[_Problem]] = {}
    for details, location in located:
        # what is wrong with a whole list or table may only follow from what is wrong inside of it, as may the
        # errors of a union's other options
        if not any(each[: len(location)] == location and each != location for _, each in located):
            by_place.setdefault(location, []).extend(_problems_of(details, location))
    return [problem for same_place in by_place.values() for problem in _joined(same_place)]


def _problems_of(details: ErrorDetails, location: Location) -> Iterator[_Problem]:
    """Yield the problems of one of pydantic's errors."""
    cause = details.get("ctx", {}).get("error")
    texts = cause.texts if isinstance(cause, Contradictions) else ()
    for text in texts:
        yield _Problem(location, "contradiction", text)
    if not texts:
        yield _Problem(location, details["type"], _expected(details), details["input"])


def _joined(same_place: Sequence[_Problem]) -> Sequence[_Problem]:
    """Return the problems of one place: those of a union's options as one."""
    if contradictions := [problem for problem in same_place if problem.kind == "contradiction"]:
        return contradictions
    *others, last = dict.fromkeys(problem.expected for problem in same_place)
    expected = f"{', '.join(others)} or {last}" if others else last
    return [replace(same_place[0], expected=expected)]


def _keys(value: Any) -> Container[Any]:
    """Return the places of a list, the keys of a table, nothing of another value."""
    if isinstance(value, list | tuple):
        return range(len(value))
    return value if isinstance(value, Mapping) else ()


def _location(details: ErrorDetails, table: Mapping[str, Any]) -> Location:
    """Return pydantic's location without its names of a union's options: what the table does not have."""
    location: Location = ()
    value = cast("Any", table)
    for place, part in enumerate(details["loc"]):
        keys = _keys(value)
        is_last = place == len(details["loc"]) - 1
        if part in keys:
            value = value[part]
        elif not (is_last and details["type"] == "missing"):
            continue
        location = (*location, part)
    return location


def _expected(details: ErrorDetails) -> str:
    """Return the expected value of a key, in the terms of TOML instead of pydantic's."""
    for kind, expected in EXPECTED_BY_ERROR.items():
        if kind in details["type"]:
            return expected
    message = details["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return {"False": "false", "True": "true"}.get(message, message)


def _follows(problem: _Problem, found: Sequence[_Problem]) -> bool:
    """Whether a problem is, or may be, only there because of one that was found."""
    for other in found:
        if problem.location[: len(other.location)] == other.location:
            return True
        name = re.escape(str(other.location[-1]))
        if problem.kind == "contradiction" and re.search(rf"\b{name}\b", problem.expected):
            return True
    return False


def _leave_out(table: dict[str, Any], problem: _Problem) -> None:
    """Remove a key with a problem from a table, or its whole list; add a missing one."""
    *parents, last = [part for part in problem.location if isinstance(part, str)] or [None]
    value: Any = table
    for parent in parents:
        value = value.get(parent) if isinstance(value, dict) else None
    if not isinstance(value, dict) or last is None:
        return
    if problem.kind == "missing":
        value[last] = PLACEHOLDER
    else:
        value.pop(last, None)


def _error(problem: _Problem, model: type[BaseModel], unknown: UnknownKey, prefix: str) -> RecipeError:
    """Return a problem as an error."""
    key, got = ".".join(filter(None, (prefix, problem.key))), problem.got
    if problem.kind == "extra_forbidden":
        return unknown(key, got)
    if problem.kind == "missing":
        return RecipeError(
            f"the recipe lacks {key!r}",
            expected=_description(model, problem.location),
            remedy=f"add it to the recipe, or to the command line as {key}=…",
        )
    if problem.kind == "contradiction":
        text = (f"[{key}]: " if key else "") + problem.expected
        return RecipeError(text, expected="keys that agree with each other")
    return RecipeError(
        f"recipe key {key!r} has an invalid value",
        got=f"a list of {len(got)}" if key == "env" and isinstance(got, list | tuple) else got,
        expected=problem.expected,
        remedy=_remedy(model, problem.location, key, got)
        if problem.expected.startswith("a table")
        else _quoted(problem, key),
    )


def _description(model: type[BaseModel], location: Location) -> str | None:
    """Return what a key of a table is; None for one that the model does not list."""
    table = table_at(model, location[:-1])
    field = table.model_fields.get(str(location[-1])) if table else None
    return field.description if field else None


def _quoted(problem: _Problem, key: str) -> str:
    """Return how to write a number as text; "" for another value."""
    if problem.kind != "string_type" or not isinstance(problem.got, int | float):
        return ""
    text = str(problem.got).lower()
    return f'{problem.location[-1]} = "{text}" in the recipe, \'{key}="{text}"\' on the command line'


def _remedy(model: type[BaseModel], location: Location, key: str, got: object) -> str:
    """Return how to write what was meant by a value in the place of a table."""
    if key == "env" and isinstance(got, list | tuple):
        return 'write rows to a file: [env] name = "dataset", data = "rows.jsonl"'
    table = table_at(model, location)
    names = ["name"] if key == "env" else list(table.model_fields) if table else []
    first = next((name for name in ("name", "kind") if name in names), None)
    if first and isinstance(got, str):
        return f"did you mean {key}.{first} = {got!r}?"
    return f"set its keys one by one, as in {key}.{names[0]}=…" if names else ""


def table_at(model: type[BaseModel], location: Location) -> type[BaseModel] | None:
    """Return the model of the table at a place, also of one in a table of tables."""
    for part in location:
        field = model.model_fields.get(str(part))
        if field is None:
            continue  # the name that a user gives a table of tables
        options = [each for each in (field.annotation, *get_args(field.annotation)) if isinstance(each, type)]
        tables = [each for each in options if issubclass(each, BaseModel)]
        if not tables:
            return None
        model = tables[0]
    return model
