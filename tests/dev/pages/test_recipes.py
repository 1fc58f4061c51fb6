"""docs/recipes.md is made of the code, and its example is a recipe."""

import re
import tomllib

import pytest
from folders import ROOT

from dev.pages.recipes import EXAMPLE, page
from truing.config import dotted_keys, load_recipe, resolve
from truing.envs import ENVS, env_from_recipe


def test_the_committed_page_is_made_of_the_code():
    assert (ROOT / "docs/recipes.md").read_text(encoding="utf-8") == page(), (
        "run: python -m dev.pages.recipes > docs/recipes.md"
    )


def test_the_example_resolves_and_its_environment_is_made():
    recipe = resolve(tomllib.loads(EXAMPLE))
    assert len(env_from_recipe(recipe).tasks("eval")) >= recipe.eval.tasks


def sections() -> dict[str, str]:
    """Heading of each table → its text."""
    return {part.partition("\n")[0]: part for part in re.split(r"\n##+ ", page())[1:]}


def test_every_key_has_a_sentence():
    shown = set()
    for title, section in sections().items():
        table = re.fullmatch(r"`\[(\w+)\]`", title)
        prefix = f"{table[1]}." if table else ""
        if not title.startswith("`[env]`"):
            shown |= {prefix + key for key in re.findall(r"^\| `(\w+)` \|.*\. \|$", section, re.MULTILINE)}
    tables = {key.partition(".")[0] for key in dotted_keys() if "." in key}
    assert shown == {key for key in dotted_keys() if key not in tables} | {"lora", "guard"}


def test_every_environment_has_its_table():
    for name, env in ENVS.items():
        section = sections()[f'`[env]` with `name = "{name}"`']
        assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(env.Config.model_fields)


def test_a_table_is_folded_under_the_names_of_its_keys():
    folded = [section for section in sections().values() if "<summary>" in section]
    assert len(folded) == page().count("\n### ") > 30
    for section in folded:
        names = re.findall(r"<code>(\w+)</code>", section)
        assert names == re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


def test_a_row_has_its_four_cells():
    cells = {
        title: {line.replace("\\|", "").count("|") for line in text.splitlines() if line.startswith("| `")}
        for title, text in sections().items()
    }
    assert cells.pop("Keys to set first") == {4}
    assert {count for counts in cells.values() for count in counts} == {5}


@pytest.mark.parametrize(
    ("section", "key", "default"),
    [
        ("`[chat]`", "template_kwargs", "`{}`"),  # made by a function
        ("`[engine]`", "servers", "`[]`"),
        ("`[model]`", "name", "required"),
        ("`[model]`", "revision", "–"),
        ("`[lora]`", "rank", "`16`"),
        ('`[env]` with `name = "reasoning_gym"`', "options", "`{}`"),
    ],
)
def test_the_page_shows_the_default_of_a_key(section, key, default):
    row = re.search(rf"^\| `{key}` \|.*$", sections()[section], re.MULTILINE)[0]
    assert row.split(" | ")[-2] == default


def test_a_key_is_called_required_only_where_a_recipe_without_it_is_refused():
    for name in [path.stem for path in (ROOT / "recipes").glob("*.toml")]:
        recipe = load_recipe(str(ROOT / f"recipes/{name}.toml")).model_dump(exclude_unset=True)
        for title, section in sections().items():
            table = re.fullmatch(r"`\[(\w+)\]`", title)
            if table and isinstance(recipe.get(table[1]), dict):
                required = set(re.findall(r"^\| `(\w+)` \|.*\| required \|", section, re.MULTILINE))
                assert required <= set(recipe[table[1]]), (name, title)
