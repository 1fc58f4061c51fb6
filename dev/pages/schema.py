"""Generates the JSON schema of recipes: ``python -m dev.pages.schema > recipe.schema.json``.

Editors read it from a recipe's first line (``#:schema ./recipe.schema.json``), complete keys and mark wrong
ones. It holds what pydantic declares of each key, and of each environment by its name; what keys require of
each other is validated at the start of a run.
"""

import json
from typing import Any

from truing.config import Recipe
from truing.envs import ENVS, IN_RECIPES
from truing.envs.imported import import_object

Schema = dict[str, Any]
"""A JSON schema."""


def recipe_schema() -> Schema:
    """Return the JSON schema of a recipe."""
    schema = Recipe.model_json_schema()
    definitions: Schema = schema.pop("$defs")
    choices: list[Schema] = []
    in_recipes = {name: import_object(path, "environment") for name, path in IN_RECIPES.items()}
    for name, env in (ENVS | in_recipes).items():
        names = {"enum": [name, IN_RECIPES[name]]} if name in IN_RECIPES else {"const": name}
        keys = env.Config.model_json_schema(ref_template=f"#/$defs/{name}.{{model}}")
        definitions |= {f"{name}.{part}": value for part, value in keys.pop("$defs", {}).items()}
        keys.pop("required", None)  # a recipe may leave a key to the command line: env.data=rows.jsonl
        keys["properties"] = {"name": names} | keys["properties"]
        definitions[f"env.{name}"] = keys
        named = {"properties": {"name": names}, "required": ["name"]}
        choices.append({"if": named, "then": {"$ref": f"#/$defs/env.{name}"}})
    built_in = {"enum": [*ENVS, *IN_RECIPES]}
    own = {"type": "string", "pattern": "^[^:]+:[^:]+$"}
    name_key = {
        "anyOf": [built_in, own],
        "description": "A built-in environment, module:Class, or path.py:Class.",
    }
    schema["properties"]["env"] |= {"properties": {"name": name_key}, "allOf": choices}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Recipe of Truing",
    } | _without_nulls(schema | {"$defs": definitions})


def schema_text() -> str:
    """Return the schema as the file holds it."""
    return json.dumps(recipe_schema(), indent=1, ensure_ascii=False) + "\n"


def _without_nulls(part: Any) -> Any:
    """Return a part of a schema without null, which TOML does not have, and titles, which repeat keys."""
    if isinstance(part, list):
        return [_without_nulls(each) for each in part]
    if not isinstance(part, dict):
        return part
    kept = {
        key: _without_nulls(value)
        for key, value in part.items()
        if not (key == "title" and isinstance(value, str)) and not (key == "default" and value is None)
    }
    if isinstance(options := kept.get("anyOf"), list):
        options = [option for option in options if option != {"type": "null"}]
        kept = kept | {"anyOf": options}
        if len(options) == 1:  # editors then name the wrong key, and not only its table
            kept = options[0] | {key: value for key, value in kept.items() if key != "anyOf"}
    return kept


if __name__ == "__main__":
    print(schema_text(), end="")
