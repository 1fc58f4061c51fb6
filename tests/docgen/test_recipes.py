"""docs/recipes.md is made of the code, and its example is a recipe."""

import re
import tomllib

from folders import ROOT

from truing.api import env_from_recipe
from truing.config import dotted_keys, resolve
from truing.docgen.recipes import EXAMPLE, page
from truing.envs import ENVS


def test_the_committed_page_is_made_of_the_code():
    assert (ROOT / "docs/recipes.md").read_text(encoding="utf-8") == page(), (
        "run: python -m truing.docgen.recipes > docs/recipes.md"
    )


def test_the_example_resolves_and_its_environment_is_made():
    recipe = resolve(tomllib.loads(EXAMPLE))
    assert len(env_from_recipe(recipe).tasks("eval")) >= recipe.eval.tasks


def test_every_key_has_a_sentence():
    shown = set()
    for section in page().split("\n## ")[1:]:
        table = re.match(r"`\[(\w+)\]`\n", section)
        prefix = f"{table[1]}." if table else ""
        if not section.startswith("`[env]`"):
            shown |= {prefix + key for key in re.findall(r"^\| `(\w+)` \|.*\. \|$", section, re.MULTILINE)}
    tables = {key.partition(".")[0] for key in dotted_keys() if "." in key}
    assert shown == {key for key in dotted_keys() if key not in tables} | {"lora", "guard"}


def test_every_environment_has_its_table():
    for name, env in ENVS.items():
        section = page().partition(f'`[env]` with `name = "{name}"`')[2].partition("\n## ")[0]
        assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(env.Config.model_fields)


def test_a_row_has_its_four_cells():
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert all(row.replace("\\|", "").count("|") == 5 for row in rows)
