"""Foreign schemas, prepared so that each call can be validated."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator, SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from truing.errors import DataError
from truing.utils.patterns import Pattern, PatternError

DATA = ("const", "default", "enum", "examples")
"""Keywords whose values are data, not schemas."""

NAMED = ("properties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose values are schemas by free names."""


def validated_schema(schema: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Return a schema of arguments without patterns that Python cannot compile; the server checks those.

    It also checks ``unevaluatedProperties``, which jsonschema searches for patterns without a time limit.

    Raises:
        DataError: It is not JSON Schema, or has an unresolved reference.
    """
    try:
        if not isinstance(schema, Mapping):
            raise SchemaError(f"{schema!r:.100} describes no arguments by name")
        readable = _readable(schema)
        Draft202012Validator.check_schema(readable)
        resolver = Registry().resolver_with_root(DRAFT202012.create_resource(readable))
        for reference in _references(readable):
            resolver.lookup(reference)
    except (SchemaError, Unresolvable, RecursionError) as error:
        raise DataError(
            f"the schema of {owner} cannot be used",
            got=getattr(error, "message", error),
            expected="JSON Schema, with references to its own parts alone",
            remedy="fix the schema in the tool's definition",
        ) from error
    return readable


def _readable(part: Any) -> Any:
    """Return the same without patterns in a dialect that Python does not support, such as JavaScript's."""
    if isinstance(part, list):
        return [_readable(each) for each in part]
    if not isinstance(part, Mapping):
        return part
    kept = {k: v for k, v in part.items() if k != "unevaluatedProperties"}
    return {k: _within(k, v) for k, v in kept.items() if k != "pattern" or not _foreign(v)}


def _within(key: str, value: Any) -> Any:
    """Return a keyword's value, prepared if it is a schema or contains some."""
    if key in DATA:
        return value
    if key in NAMED and isinstance(value, Mapping):
        return {name: _readable(each) for name, each in value.items()}
    if key == "patternProperties" and isinstance(value, Mapping):
        return {name: _readable(each) for name, each in value.items() if not _foreign(name)}
    return _readable(value)


def _foreign(pattern: Any) -> bool:
    """Whether Python cannot compile this pattern."""
    try:
        return isinstance(pattern, str) and not (re.compile(pattern) and Pattern(pattern))
    except (re.error, PatternError, RecursionError, OverflowError):
        return True


def _references(part: Any) -> Iterator[str]:
    """Yield every ``$ref`` in a schema."""
    if isinstance(part, list):
        for each in part:
            yield from _references(each)
    elif isinstance(part, Mapping):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for key, value in part.items():
            if key not in DATA:
                yield from _references(list(value.values()) if key in NAMED else value)
