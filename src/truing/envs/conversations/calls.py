"""Tools of a row and calls of its messages: OpenAI's form, also as JSON text, without the nulls of Arrow.

Arrow gives all rows the keys of any row. So a null in an object is a key that the row did not have, unless
the schema of the tool allows null there; JSON text has its own keys only.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from truing.envs.conversations.place import Place
from truing.types.message import ToolCall, ToolSpec

EXPECTED_TOOLS = "a list of tools, each with name, description and parameters, or such a list as JSON text"
EXPECTED_CALL = 'a call such as {"function": {"name": "f", "arguments": {}}}'
EXPECTED_ARGUMENTS = "a JSON object, or the text of one"

NULLS = "null arguments of calls, which no schema of a tool allows, are left out"
CALL_KEYS = {"id", "type", "function", "name", "arguments", "index"}


def read_tools(value: Any, place: Place) -> tuple[ToolSpec, ...]:
    """Return the schemas of tools: OpenAI's form, or its inner table."""
    listed = place.parsed(value, EXPECTED_TOOLS)
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise place.error(value, EXPECTED_TOOLS)
    return tuple(
        _tool(each, place.of(f"tool {i}"), own_keys=isinstance(value, str))
        for i, each in enumerate(listed, 1)
    )


def _tool(value: Any, place: Place, *, own_keys: bool) -> ToolSpec:
    """Return one tool; ``own_keys`` says that its nulls are its own."""
    parsed = place.parsed(value, EXPECTED_TOOLS)
    if not own_keys and not isinstance(value, str):
        parsed = _without_nulls(parsed)
    function = parsed.get("function", parsed) if isinstance(parsed, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
        raise place.error(value, EXPECTED_TOOLS)
    named = {key: each for key, each in function.items() if key not in ("type", "function")}
    name, description = named.pop("name"), named.pop("description", None) or ""
    parameters = place.of("parameters").parsed(named.pop("parameters", None), EXPECTED_TOOLS)
    if not isinstance(parameters, Mapping | None) or not isinstance(description, str):
        raise place.error(value, EXPECTED_TOOLS)
    return ToolSpec(name, description, parameters or {"type": "object", "properties": {}}, named)


def read_calls(
    value: Any, tools: Sequence[ToolSpec], place: Place
) -> tuple[tuple[ToolCall, ...], tuple[str, ...]]:
    """Return the calls of a message, and sentences on what they lack then."""
    listed = place.parsed(value, f"a list of calls, {EXPECTED_CALL}")
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise place.error(value, f"a list of calls, {EXPECTED_CALL}")
    remarks: list[str] = []
    calls = tuple(_call(each, tools, place.of(f"call {i}"), remarks) for i, each in enumerate(listed, 1))
    return calls, tuple(remarks)


def _call(value: Any, tools: Sequence[ToolSpec], place: Place, remarks: list[str]) -> ToolCall:
    function = value.get("function") or value if isinstance(value, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        raise place.error(value, f"{EXPECTED_CALL}: with the name of a tool")
    assert isinstance(function, Mapping)
    given, place = function.get("arguments"), place.of(f"arguments of {name}")
    arguments = place.parsed(given, EXPECTED_ARGUMENTS)
    if not isinstance(arguments, Mapping):
        raise place.error(given, EXPECTED_ARGUMENTS, "write {} for a call without arguments")
    if not isinstance(given, str):
        schema = next((tool.parameters for tool in tools if tool.name == name), {})
        kept = _arguments(arguments, schema)
        remarks += [NULLS] if kept != arguments else []
        arguments = kept
    others = {key for each in (value, function) for key in each if each[key] is not None} - CALL_KEYS
    remarks += [f"the key {key!r} of calls is not read" for key in sorted(others)]
    identity = value.get("id")
    return ToolCall(name, dict(arguments), None if identity is None else str(identity))


def _arguments(value: Any, schema: Any) -> Any:
    """Return arguments without nulls where their schema does not allow null."""
    schema = schema if isinstance(schema, Mapping) else {}
    if isinstance(value, Mapping):
        declared = schema.get("properties")
        declared = declared if isinstance(declared, Mapping) else {}
        return {
            key: _arguments(each, declared.get(key))
            for key, each in value.items()
            if each is not None or (key in declared and _allows_null(declared[key]))
        }
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_arguments(each, schema.get("items")) for each in value]
    return value


def _allows_null(schema: Any) -> bool:
    """Whether a schema allows null: it says so, or says nothing about types."""
    if not isinstance(schema, Mapping):
        return schema is not False
    if schema.get("nullable") is True:
        return True
    if "enum" in schema:
        return None in _listed(schema["enum"])
    if "const" in schema:
        return schema["const"] is None
    if "type" in schema:
        return "null" in _listed(schema["type"])
    choices = schema.get("anyOf") or schema.get("oneOf")
    return any(map(_allows_null, _listed(choices))) if choices else True


def _listed(value: Any) -> Sequence[Any]:
    """Return what a schema lists; a single value, which may be none of JSON Schema, as a list of it."""
    return value if isinstance(value, Sequence) and not isinstance(value, str) else [value]


def _without_nulls(value: Any) -> Any:
    """Return a value whose objects have no nulls; lists keep theirs, such as those of ``enum``."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_without_nulls(each) for each in value]
    return value
