"""The JSON schema of recipes is made of the code, accepts every recipe, and refuses wrong keys."""

import json
import tomllib

import pytest
from folders import ROOT
from jsonschema import Draft7Validator

from dev.pages.recipes import EXAMPLE
from dev.pages.schema import recipe_schema, schema_text
from truing.config import resolve

FILE = ROOT / "src/truing/config/recipe.schema.json"
RECIPES = sorted((ROOT / "recipes").rglob("*.toml"))


@pytest.fixture(scope="module")
def validator():
    return Draft7Validator(json.loads(FILE.read_text(encoding="utf-8")))


def test_the_committed_schema_is_made_of_the_code():
    assert FILE.read_text(encoding="utf-8") == schema_text(), (
        "run: python -m dev.pages.schema > src/truing/config/recipe.schema.json"
    )
    Draft7Validator.check_schema(recipe_schema())


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_recipe_names_the_schema_and_follows_it(path, validator):
    text = path.read_text(encoding="utf-8")
    directive, _, reference = text.partition("\n")[0].partition(" ")
    assert directive == "#:schema"
    assert (path.parent / reference).resolve() == FILE
    assert [error.message for error in validator.iter_errors(tomllib.loads(text))] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grpo": {"steps": 1, "learning_rate": 1e-3, "lr": 1}}, "'lr' was unexpected"),
        ({"grpo": {"steps": 0, "learning_rate": 1e-3}}, "0 is less than the minimum"),
        ({"env": {"name": "arithmetic", "kindz": ["max"]}}, "'kindz' was unexpected"),
        ({"env": {"name": "aritmetic"}}, "'aritmetic' is not valid under any of the given schemas"),
        (
            {"env": {"name": "dataset", "data": "x", "rewards": {"a": {"knd": "exact"}}}},
            "'knd' was unexpected",
        ),
        ({"modle": {}}, "'modle' was unexpected"),
    ],
)
def test_a_wrong_key_or_value_is_marked(change, message, validator):
    (first, *_) = (error.message for error in validator.iter_errors(tomllib.loads(EXAMPLE) | change))
    assert message in first


def test_an_own_environment_may_have_any_key(validator):
    table = tomllib.loads(EXAMPLE) | {"env": {"name": "my_tasks:Numbers", "count": 50}}
    resolve(table)
    assert list(validator.iter_errors(table)) == []
