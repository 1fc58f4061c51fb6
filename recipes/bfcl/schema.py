"""BFCL writes parameters with Python's names of types, and calls as Python's source: both become JSON."""

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any

from truing.errors import DataError
from truing.types.message import ToolCall

TYPES = {
    "dict": "object",
    "float": "number",
    "tuple": "array",
    "array": "array",
    "boolean": "boolean",
    "integer": "integer",
    "string": "string",
}
"""BFCL's type → JSON schema's. ``any`` is not here: it becomes a schema without a type."""


def json_schema(described: Mapping[str, Any]) -> dict[str, Any]:
    """A description of parameters as JSON schema.

    >>> json_schema({"type": "dict", "properties": {"x": {"type": "float"}}, "required": ["x"]})
    {'type': 'object', 'properties': {'x': {'type': 'number'}}, 'required': ['x']}

    Raises:
        DataError: A type is not one of Python's: rows for Java and JavaScript are not supported.
    """
    schema: dict[str, Any] = {}
    for key, value in described.items():
        if key == "properties":
            schema[key] = {name: json_schema(part) for name, part in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, Mapping):
            schema[key] = json_schema(value)
        elif key != "type":
            schema[key] = value
        elif value in TYPES:
            schema[key] = TYPES[value]
        elif value != "any":
            raise DataError("BFCL names an unknown type", got=value, expected=f"{', '.join(TYPES)} or any")
    return schema


def read_call(source: str, parameters: Mapping[str, Sequence[str]]) -> ToolCall:
    """A call written in Python; ``parameters`` names those of each function, in their order.

    >>> read_call("cd('docs')", {"cd": ["folder"]})
    ToolCall(name='cd', arguments={'folder': 'docs'})

    Raises:
        DataError: The source is not one call of a known function with literal arguments.
    """
    try:
        call = ast.parse(source, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("not a call of a function by name")
        names = parameters[call.func.id][: len(call.args)]
        pairs = [*zip(names, call.args, strict=True), *((k.arg, k.value) for k in call.keywords)]
        arguments = {name: ast.literal_eval(value) for name, value in pairs}
    except (SyntaxError, ValueError, KeyError) as error:
        raise DataError(
            "a reference call cannot be read",
            got=f"{source} ({type(error).__name__}: {error})",
            expected="a known function with literal arguments",
        ) from error
    return ToolCall(call.func.id, json.loads(json.dumps(arguments)))
