"""docs/recipes.md, from the recipe's classes: ``python -m truing.docgen.recipes > docs/recipes.md``."""

import json
from collections.abc import Mapping
from typing import Any

from truing.config import Recipe
from truing.docgen.metrics import table_row
from truing.envs import ENVS

EXAMPLE = """\
name = "digits"
stages = ["sft", "grpo"]

[model]
name = "tiny"

[env]
name = "arithmetic"
kinds = ["max"]
train = 48
eval = 16

[sampling]
max_new_tokens = 4

[sft]
steps = 20
learning_rate = 3e-3

[grpo]
steps = 20
learning_rate = 1e-3

[eval]
tasks = 16
temperature = 1.0
"""

HEAD = f"""\
# Recipes

Made by `python -m truing.docgen.recipes`; edit the sentences in `src/truing/config/` and `src/truing/envs/`.

A recipe is a TOML file that decides everything about a run. This is a whole one:

```toml
{EXAMPLE}```

`truing train digits.toml` runs it. Any key can be changed on the command line, as `key=value` with the value
in TOML and dots between the parts of the key: `grpo.steps=40`, `env.kinds='["add-1", "max"]'`, `lora.rank=8`,
`lora=false`. A value that is no TOML is taken as text: `model.name=smollm2-135m`. `sampling.top_p=` takes the
key out, so that its default holds. Each stage that is named in `stages` needs its table. The recipe as it was
run is saved in the run directory as `recipe.toml`.
"""

TABLE = """
| key | value | default | what it is |
|---|---|---|---|
"""

NAMES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "object": "table",
    "boolean": "true or false",
}
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}

Schema = Mapping[str, Any]
"""A JSON schema, as pydantic makes it of a part of the recipe."""


def page() -> str:
    """The page as Markdown."""
    recipe = Recipe.model_json_schema()
    sections = [_section("Outside any table", recipe)]
    for key, schema in recipe["properties"].items():
        for option in schema.get("anyOf", [schema]):
            if "$ref" in option:
                sections.append(_section(f"`[{key}]`", recipe["$defs"][option["$ref"].rpartition("/")[2]]))
    for name, env in ENVS.items():
        sections.append(_section(f'`[env]` with `name = "{name}"`', env.Config.model_json_schema()))
    return HEAD + "".join(sections)


def _section(title: str, part: Schema) -> str:
    """A heading and the table of a part's own keys; parts within it have sections of their own."""
    rows = [
        table_row(f"`{key}`", _value(schema), _default(schema), schema["description"])
        for key, schema in part["properties"].items()
        if "description" in schema
    ]
    return f"\n## {title}\n\n{part['description']}\n{TABLE}{''.join(rows)}"


def _value(schema: Schema) -> str:
    """What a key can be set to."""
    if "anyOf" in schema:
        return " or ".join(_value(option) for option in schema["anyOf"] if option != {"type": "null"})
    if "enum" in schema or "const" in schema:
        return " | ".join(_code(value) for value in schema.get("enum", [schema.get("const")]))
    if "$ref" in schema:
        return "table"
    if schema["type"] == "array":
        return f"list of {_value(schema['items'])}"
    bounds = (f"{sign} {schema[bound]}" for bound, sign in BOUNDS.items() if bound in schema)
    return " ".join([NAMES[schema["type"]], ", ".join(bounds)]).strip()


def _default(schema: Schema) -> str:
    """What a key is where the recipe leaves it out."""
    if "default" not in schema:
        return "required"
    return "–" if schema["default"] is None else _code(schema["default"])


def _code(value: object) -> str:
    return f"`{json.dumps(value)}`"


if __name__ == "__main__":
    print(page(), end="")
