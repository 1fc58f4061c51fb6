"""Validation by JSON Schema in which patterns have a time limit, and null is a value of what is nullable."""

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


DATA_KEYWORDS = ("const", "default", "enum", "examples")
"""Keywords whose values are data, not schemas."""

DEFINITIONS = ("$defs", "definitions")
"""Keywords with schemas that references name."""

APPLICATORS = ("$ref", "allOf", "anyOf", "oneOf", "not")
"""Keywords that apply other schemas to a value."""


def arguments_validator(schema: Any) -> Any:
    """Return the validator of a schema that may say ``nullable``."""
    return ArgumentsValidator(with_null_types(schema))


def with_null_types(schema: Any) -> Any:
    """Return a schema in which null is a type of what OpenAPI's ``"nullable": true`` allows to be null.

    JSON Schema ignores that keyword; transformers describes ``Optional`` parameters by it.
    """
    if isinstance(schema, list):
        return [with_null_types(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    known = {key: x if key in DATA_KEYWORDS else with_null_types(x) for key, x in schema.items()}
    if known.get("nullable") is not True:
        return known
    del known["nullable"]
    if any(key in known for key in APPLICATORS):
        definitions = {key: known.pop(key) for key in DEFINITIONS if key in known}
        return {**definitions, "anyOf": [known, {"type": "null"}]}
    if "const" in known:
        known["enum"] = [known.pop("const")]
    if "enum" in known:
        known["enum"] = [*known["enum"], None]
    if "type" in known:
        kinds = known["type"]
        known["type"] = [*([kinds] if isinstance(kinds, str) else kinds), "null"]
    return known
