"""Values that a format writes without their types, which the schema of the tool gives back."""

import math
import re
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import UnknownType
from referencing.exceptions import Unresolvable

from truing.chat.call_formats.shared.pythonic import read_literal
from truing.chat.call_formats.shared.scanner import MalformedCall, Tools, skip
from truing.errors import DataError

DEFINITIONS = ("$defs", "definitions")


def schema_of(tools: Tools, name: str, key: str) -> Any:
    """The schema of an argument, with the definitions that it may refer to; None where nothing states one."""
    for tool in tools:
        if tool.name == name:
            told = tool.parameters
            schema = told.get("properties", {}).get(key, told.get("additionalProperties"))
            kept = {part: told[part] for part in DEFINITIONS if part in told}
            return {**kept, **schema} if isinstance(schema, Mapping) else schema
    return None


def value_of(written: str, schema: Any) -> Any:
    """What a text means as an argument: the number 5 where the schema takes one, the text "5" where not.

    A literal (a number, ``true`` or ``True``, ``null`` or ``None``, a list, an object) that the schema takes
    is meant, else the text itself. Where neither fits, the tool is left to refuse the one of the right type.
    """
    try:
        literal = read_literal(written, skip(written, 0))
    except MalformedCall:
        return written
    whole = skip(written, literal.end) == len(written)
    if not whole or isinstance(literal.data, str) or _infinite(literal.data):
        return written
    if schema is None:
        return literal.data
    of_literal, of_text = _faults(literal.data, schema), _faults(written, schema)
    if not of_literal:
        return literal.data
    text_is_meant = not of_text or ("type" in of_literal and not of_text & {"type", "anyOf", "oneOf"})
    return written if text_is_meant else literal.data


def _infinite(data: Any) -> bool:
    """Whether a number is none of JSON's."""
    return isinstance(data, float) and not math.isfinite(data)


def _faults(data: Any, schema: Any) -> set[str]:
    """The keywords of a schema that a value does not keep to."""
    try:
        return {str(error.validator) for error in Draft202012Validator(schema).iter_errors(data)}
    except (UnknownType, Unresolvable, re.error) as error:
        raise DataError(
            "the schema of a tool's argument is none", got=str(error)[:200], expected="JSON Schema 2020-12"
        ) from error
