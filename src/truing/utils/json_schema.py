"""Validation by JSON Schema in which patterns have a time limit."""

from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from truing.utils.patterns import Pattern


def _pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[ValidationError]:
    """Yield an error unless a text has the pattern."""
    if validator.is_type(value, "string"):
        try:
            if not Pattern(pattern).matches(value):
                yield ValidationError(f"{value!r} does not match {pattern!r}")
        except TimeoutError:
            yield ValidationError(f"the search for {pattern!r} in it takes too long")


def _pattern_properties(validator: Any, patterns: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    """Yield the errors of the values whose names have a pattern."""
    if validator.is_type(value, "object"):
        for pattern, inner in patterns.items():
            for name in _matching(pattern, value):
                yield from validator.descend(value[name], inner, path=name, schema_path=pattern)


def _additional_properties(validator: Any, inner: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    """Yield the errors of the values that neither a name nor a pattern declares."""
    if not validator.is_type(value, "object"):
        return
    matched = {name for pattern in schema.get("patternProperties", ()) for name in _matching(pattern, value)}
    others = [name for name in value if name not in schema.get("properties", {}) and name not in matched]
    if validator.is_type(inner, "object"):
        for name in others:
            yield from validator.descend(value[name], inner, path=name)
    elif not inner and others:
        names = ", ".join(map(repr, others))
        were = "was" if len(others) == 1 else "were"
        yield ValidationError(f"Additional properties are not allowed ({names} {were} unexpected)")


def _matching(pattern: str, value: Mapping[str, Any]) -> list[str]:
    """Return the names that have a pattern; none whose search takes too long."""
    try:
        return [name for name in value if Pattern(pattern).matches(name)]
    except TimeoutError:
        return []


ArgumentsValidator = extend(
    Draft202012Validator,
    {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    },
)
"""Draft 2020-12 with a time limit for each search of a pattern; a longer one makes the value invalid."""
