"""Schemas that others wrote: used as far as Python can, refused before anything is played."""

import pytest

from truing.envs.adapters.schema import validated_schema
from truing.envs.tools import Tool, ToolError
from truing.errors import DataError
from truing.types.message import ToolSpec


def made(properties, **more):
    return {"type": "object", "properties": properties, **more}


def test_patterns_that_python_cannot_read_are_left_to_their_owner():
    mine, theirs = {"type": "string", "pattern": "^a+$"}, {"type": "string", "pattern": r"^\p{L}+$"}
    schema = validated_schema(made({"mine": mine, "pattern": theirs, "default": theirs}), "a tool")
    assert schema["properties"] == {
        "mine": mine,
        "pattern": {"type": "string"},
        "default": {"type": "string"},
    }
    tool = Tool(ToolSpec("f", "", schema), lambda **given: "ok")
    assert tool.run({"mine": "aa", "pattern": "é"}) == "ok"
    with pytest.raises(ToolError, match="mine"):
        tool.run({"mine": "b"})


def test_data_is_no_schema():
    held = {"const": {"pattern": r"\p{L}", "$ref": "#/nowhere"}}
    assert validated_schema(made({"x": held}), "a tool") == made({"x": held})


def test_references_to_its_own_parts_are_kept():
    schema = made({"x": {"$ref": "#/$defs/default"}}, **{"$defs": {"default": {"type": "integer"}}})
    assert validated_schema(schema, "a tool") == schema


@pytest.mark.parametrize(
    "schema",
    [
        made({"x": {"type": "strng"}}),
        made({"x": {"$ref": "#/$defs/Nowhere"}}),
        made({"items": {"type": "array", "items": {"$ref": "https://example.org/other.json"}}}),
    ],
)
def test_what_cannot_be_checked_is_refused_by_name(schema):
    with pytest.raises(DataError, match=r"the schema of the MCP tool f cannot be used"):
        validated_schema(schema, "the MCP tool f")
