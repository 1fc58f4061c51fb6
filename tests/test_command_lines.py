"""Every command line on a recipe that recipes, docs and the README print can be typed as it stands."""

import re
import shlex
from pathlib import Path

import pytest
from folders import ROOT

from truing.config import load_recipe
from truing.envs import env_keys

PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += sorted((ROOT / "recipes").rglob("*.toml"))
LINE = re.compile(r"truing (?:train|check|verify|eval|bench) (?:recipes/\S+\.toml|musique)\b[^`#|;]*")

STANDS_FOR = {
    "model.name=…": "model.name=tiny",
    "env.name=…": "env.name=arithmetic",
    "env.name=my_module:Class": "env.name=arithmetic",
    "seed=$seed": "seed=1",
    "grpo.learning_rate=$rate": "grpo.learning_rate=1e-3",
}
"""What the reader puts there."""


def printed_commands():
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for line in text.splitlines():
            yield from ((page.relative_to(ROOT), found[0].strip()) for found in LINE.finditer(line))


def parts(command):
    """The recipe, the keys that are set, and the options of TRL's names (tests/cli/test_train_aliases.py)."""
    _, _, recipe, *words = shlex.split(command)
    return recipe, [STANDS_FOR.get(word, word) for word in words if re.match(r"[a-z_.]+=", word)]


@pytest.mark.parametrize(
    ("page", "command"), sorted(set(printed_commands())), ids=lambda each: str(each)[:60]
)
def test_a_printed_command_line_is_read_with_the_keys_of_its_environment(page, command, monkeypatch):
    monkeypatch.chdir(ROOT)
    recipe, changes = parts(command)
    made = load_recipe(Path(recipe), changes)
    keys = {key: value for key, value in made.env.items() if key != "name"}
    assert env_keys(made.env["name"], keys), page


def test_the_presets_print_one_each():
    presets = {str(page) for page, _ in printed_commands() if page.parts[:2] == ("recipes", "presets")}
    assert presets == {str(path.relative_to(ROOT)) for path in (ROOT / "recipes" / "presets").glob("*.toml")}
