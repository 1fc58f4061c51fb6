"""Null is a value of what a schema calls nullable, wherever a schema is read."""

import json
from typing import Literal, Optional

import pytest

from truing.chat.call_formats.shared.schema_grammar import tool_arguments
from truing.chat.call_formats.shared.untyped_values import value_of
from truing.envs.tools import ToolEpisode
from truing.trl.data.tools import trl_tool
from truing.types.message import AssistantMessage, ToolCall, ToolSpec
from truing.utils.json_schema import arguments_validator, with_null_types

NULLABLE = [
    {"type": "integer", "nullable": True},
    {"type": ["integer", "string"], "nullable": True},
    {"type": "string", "enum": ["a", "b"], "nullable": True},
    {"const": "a", "nullable": True},
    {"anyOf": [{"type": "integer"}, {"type": "string"}], "nullable": True},
    {"$ref": "#/$defs/city", "nullable": True},
    {"allOf": [{"type": "integer"}, {"minimum": 1}], "nullable": True},
]


@pytest.mark.parametrize("schema", NULLABLE)
def test_null_is_valid_only_where_the_schema_says_nullable(schema):
    defined = {"$defs": {"city": {"type": "string"}}}

    def faults(part):
        validator = arguments_validator({**defined, "properties": {"x": part}})
        return [*validator.iter_errors({"x": None})]

    plain = {key: value for key, value in schema.items() if key != "nullable"}
    assert faults(schema) == []
    assert faults(plain)
    assert faults({**plain, "nullable": False})
    assert faults({"items": schema, "type": "array"})  # an element may be null, the list not


@pytest.mark.parametrize("schema", NULLABLE)
def test_other_wrong_values_stay_wrong(schema):
    assert not arguments_validator({**schema, "$defs": {"city": {"type": "string"}}}).is_valid([1.5])


def test_data_and_names_in_a_schema_are_not_keywords():
    schema = {
        "properties": {"nullable": {"type": "boolean"}},
        "enum": [{"nullable": True}],
        "default": {"nullable": True, "type": "x"},
    }
    assert with_null_types(schema) == schema


def search(
    query: str,
    limit: Optional[int] = None,  # noqa: UP045 — as scripts write it
    order: Literal["up", "down"] | None = None,
    tags: list[str] | None = None,
    near: dict | None = None,
) -> str:
    """
    Searches.

    Args:
        query: What to search.
        limit: How many results.
        order: Of the results.
        tags: Of the results.
        near: A place.
    """
    return json.dumps([query, limit, order, tags, near])


@pytest.mark.parametrize("name", ["limit", "order", "tags", "near"])
def test_a_tool_takes_null_for_an_argument_that_the_model_reads_as_nullable(name):
    tool = trl_tool(search)
    assert tool.spec.parameters["properties"][name]["nullable"] is True  # as TRL shows it
    call = ToolCall("search", {"query": "x", name: None})
    (answer,) = ToolEpisode([tool]).reply(AssistantMessage("", (call,)))
    assert answer["content"] == search("x")
    wrong = ToolCall("search", {"query": None, name: None})
    (refused,) = ToolEpisode([tool]).reply(AssistantMessage("", (wrong,)))
    assert refused["content"] == "Error: wrong arguments for search: query: None is not of type 'string'"


def test_grammars_and_untyped_values_know_null_too():
    part = {"type": "integer", "nullable": True}
    spec = ToolSpec("f", "does f", {"type": "object", "properties": {"x": part}})
    x = tool_arguments(spec)[0]
    assert [each["type"] for each in x.parts] == ["integer", "null"]
    assert value_of("null", part) is None
    assert value_of("null", {"type": "string"}) == "null"
