"""Values written without types; the tool's schema restores them."""

import math
from collections.abc import Mapping
from typing import Any

from jsonschema.exceptions import UnknownType
from referencing.exceptions import Unresolvable

from truing.chat.call_formats.shared.pythonic import read_literal
from truing.chat.call_formats.shared.scanner import MalformedCall, Tools, skip
from truing.errors import DataError
from truing.utils.json_schema import DEFINITIONS, arguments_validator
from truing.utils.patterns import PatternError


def schema_of(tools: Tools, name: str, key: str) -> Any:
    """Return the schema of an argument, with the definitions it may refer to; None without one."""
    for tool in tools:
        if tool.name == name:
            parameters = tool.parameters
            schema = parameters.get("properties", {}).get(key, parameters.get("additionalProperties"))
            definitions = {part: parameters[part] for part in DEFINITIONS if part in parameters}
            return {**definitions, **schema} if isinstance(schema, Mapping) else schema
    return None


def value_of(text: str, schema: Any) -> Any:
    """Return the value of a text as an argument: the number 5 if the schema takes one, else the text "5".

    A literal (a number, ``true`` or ``True``, ``null`` or ``None``, a list, an object) that the schema takes
    wins, else the text itself. If neither fits, the value of the right type is left for the tool to reject.
    """
    try:
        literal = read_literal(text, skip(text, 0))
    except MalformedCall:
        return text
    complete = skip(text, literal.end) == len(text)
    if not complete or isinstance(literal.data, str) or _infinite(literal.data):
        return text
    if schema is None:
        return literal.data
    of_literal, of_text = _faults(literal.data, schema), _faults(text, schema)
    if not of_literal:
        return literal.data
    is_text = not of_text or ("type" in of_literal and not of_text & {"type", "anyOf", "oneOf"})
    return text if is_text else literal.data


def _infinite(data: Any) -> bool:
    """Whether a number is not valid JSON."""
    return isinstance(data, float) and not math.isfinite(data)


def _faults(data: Any, schema: Any) -> set[str]:
    """Return the keywords of a schema that a value violates."""
    try:
        return {str(error.validator) for error in arguments_validator(schema).iter_errors(data)}
    except (UnknownType, Unresolvable, PatternError) as error:
        raise DataError(
            "the schema of a tool's argument is none", got=str(error)[:200], expected="JSON Schema 2020-12"
        ) from error
