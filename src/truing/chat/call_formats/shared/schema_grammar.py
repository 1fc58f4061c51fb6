"""Shared by the grammars: a tool's schema by arguments, and Return the grammar of JSON by a schema."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from truing.chat.call_formats.shared.scanner import Tools
from truing.errors import RecipeError
from truing.types.message import ToolSpec
from truing.utils.json_schema import DEFINITIONS, with_null_types

JSON_FORM = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON as chat templates write it; with free white space, a random policy might write it endlessly."""

ANNOTATIONS = {
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
}
"""Keywords without effect on validity."""
TOOL_KEYWORDS = {"type", "properties", "required", "additionalProperties", "$schema", "strict"}
TEXT_KEYWORDS = {"type", "enum", "const", "minLength", "maxLength", "pattern", "format"}

TEXT_FORMATS = {
    "date": r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",
    "time": r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])",
    "uuid": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
}
TEXT_FORMATS["date-time"] = f"{TEXT_FORMATS['date']}T{TEXT_FORMATS['time']}"
"""Formats that are enforced; others are annotations, as in JSON Schema."""


@dataclass(frozen=True)
class Argument:
    """An argument of a tool: its name (None for any name) and its schemas."""

    name: str | None
    required: bool
    parts: tuple[Mapping[str, Any], ...]  # each of one type, or a list of values


def tool_arguments(tool: ToolSpec) -> list[Argument]:
    """Return the arguments of a tool in the order of its schema; additional ones last."""
    schema = closed_schema(tool)
    if unsupported := set(schema) - TOOL_KEYWORDS - ANNOTATIONS - set(DEFINITIONS):
        raise _beyond(tool, unsupported)
    definitions = {part: schema[part] for part in DEFINITIONS if part in schema}
    required = schema.get("required", ())
    arguments = [
        Argument(name, name in required, tuple(_parts(part_schema, definitions)))
        for name, part_schema in schema.get("properties", {}).items()
    ]
    other_names = schema.get("additionalProperties", True)
    if other_names is not False:
        arguments.append(Argument(None, False, tuple(_parts(other_names, definitions))))
    return arguments


def text_terminals(tool: ToolSpec, part: Mapping[str, Any]) -> str:
    """Return the Lark terminals of a text with a length or pattern."""
    if unsupported := set(part) - TEXT_KEYWORDS - ANNOTATIONS - set(DEFINITIONS):
        raise _beyond(tool, unsupported)
    min_length, max_length = part.get("minLength", 0), part.get("maxLength", "")
    terminals = [f"/(?s:.{{{min_length},{max_length}}})/" if min_length or max_length != "" else "/(?s:.*)/"]
    if "pattern" in part:
        inner = part["pattern"].removeprefix("^").removesuffix("$").replace("/", r"\/")
        before = "" if part["pattern"].startswith("^") else "(?s:.*)"
        after = "" if part["pattern"].endswith("$") else "(?s:.*)"
        terminals.append(f"/{before}({inner}){after}/")
    if part.get("format") in TEXT_FORMATS:
        terminals.append(f"/{TEXT_FORMATS[part['format']]}/")
    return " & ".join(terminals)


def takes_text(part: Mapping[str, Any]) -> bool:
    """Whether a schema allows texts beyond an enumeration."""
    return "enum" not in part and part.get("type", "string") == "string"


def json_rule(schema: Any) -> str:
    """Return the grammar of JSON by a schema."""
    return f"%json {json.dumps({'x-guidance': JSON_FORM, **schema})}"


def closed_schema(tool: ToolSpec) -> dict[str, Any]:
    """Return the schema of a tool's arguments; other keys are allowed only if it says so."""
    schema = with_null_types(tool.parameters)
    return {"additionalProperties": False, **schema} if "properties" in schema else schema


def check_names(tools: Tools, name: str, key: str) -> None:
    """Raise if the format cannot write the name of a tool or of an argument."""
    for tool in tools:
        names = [(tool.name, name), *((argument, key) for argument in tool.parameters.get("properties", {}))]
        for argument, form in names:
            if not re.fullmatch(form, argument):
                raise RecipeError(
                    "a name cannot be written in this call format",
                    got=f"{argument!r} of the tool {tool.name!r}",
                    expected="letters, digits, and signs that are not part of a tag",
                    remedy='set episode.grammar = "off", or rename it',
                )


def _parts(schema: Any, definitions: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the alternatives of a schema, each of one type or an enumeration."""
    schema = {} if schema is True else dict(schema or {"enum": []})
    if "$ref" in schema:
        target = _resolve_reference(schema.pop("$ref"), definitions)
        yield from _parts({**target, **schema}, definitions)
        return
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema and (keyword != "allOf" or len(schema["allOf"]) == 1):
            for part in schema.pop(keyword):
                yield from _parts({**schema, **part}, definitions)
            return
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    kinds = schema.get("type")
    if isinstance(kinds, list) and "enum" not in schema:
        yield from ({**definitions, **schema, "type": kind} for kind in kinds)
    else:
        yield {**definitions, **schema}


def _resolve_reference(reference: str, definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema that a reference names."""
    target: Any = definitions
    for step in reference.removeprefix("#/").split("/"):
        if step not in target:
            raise RecipeError(
                "the schema of a tool refers to what is not there",
                got=reference,
                expected=f"a part of {', '.join(DEFINITIONS)}",
                remedy="define it in the parameters of the tool",
            )
        target = target[step]
    return target


def _beyond(tool: ToolSpec, keywords: set[str]) -> RecipeError:
    """Return the remedy for a schema with constraints that a grammar cannot enforce."""
    return RecipeError(
        "the schema of a tool cannot be held to",
        got=f"{', '.join(sorted(keywords))} in the parameters of {tool.name}",
        expected="types, lists of values, and bounds on them",
        remedy='set episode.grammar = "off", or simplify the parameters of the tool',
    )
