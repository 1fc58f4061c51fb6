"""Each command, key, file and import in docs/faq.md exists."""

import ast
import re
import shlex
import tomllib
from importlib import import_module

import pytest
from folders import ROOT
from typer.main import get_command

from dev.pages.metrics import page as metrics_page
from truing.cli import app
from truing.config import dotted_keys, is_builtin_recipe, load_recipe
from truing.envs import ENVS

PAGE = (ROOT / "docs/faq.md").read_text(encoding="utf-8")
KEYS = set(dotted_keys())
SECTIONS = {key.partition(".")[0] for key in KEYS if "." in key}
ASSIGNMENT = re.compile(r"[a-z_.]+=")


BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
BLOCKS = [(match[1], match[2]) for match in BLOCK.finditer(PAGE)]
INLINE = re.findall(r"`([^`\n]+)`", BLOCK.sub("", PAGE))
COMMANDS = [
    *(code for code in INLINE if code.startswith("truing ")),
    *(
        line
        for kind, block in BLOCKS
        if not kind
        for line in block.splitlines()
        if line.startswith("truing ")
    ),
]


def is_key(name: str) -> bool:
    """Whether a dotted name is a key of a recipe, or of an environment's table."""
    if name.startswith("env."):
        return name == "env.name" or any(
            name.split(".")[1] in env.Config.model_fields for env in ENVS.values()
        )
    return name in KEYS


def errors(command: str) -> list[str]:
    """What a `truing` command names that does not exist."""
    words = shlex.split(command)[1:]
    part = get_command(app)
    while words and hasattr(part, "commands"):
        if words[0] not in part.commands:
            return [words[0]]
        part = part.commands[words.pop(0)]
    options = {option for each in part.params for option in each.opts}
    wrong = [word for word in words if word.startswith("-") and word not in options]
    wrong += [word for word in words if ASSIGNMENT.match(word) and not is_key(word.partition("=")[0])]
    recipes = [word for word in words[:1] if part.params[0].name == "recipe"]
    recipes += [word for word in words[:1] if word.endswith(".toml") and word not in recipes]
    return wrong + [each for each in recipes if not ((ROOT / each).is_file() or is_builtin_recipe(each))]


def test_the_page_is_read():
    assert {language for language, _ in BLOCKS} == {"", "toml", "python"}
    assert len(COMMANDS) > 12


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_exist(command):
    assert errors(command) == []


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.startswith("truing train ")])
def test_recipes_load_with_the_overrides_of_their_command(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    recipe, *words = shlex.split(command)[2:]
    load_recipe(recipe, [word for word in words if ASSIGNMENT.match(word)])


def test_a_command_that_does_not_exist_is_found():
    assert errors("truing trian recipes/tiny.toml") == ["trian"]
    wrong = ["--rank", "grpo.step=1", "recipes/x.toml"]
    assert errors("truing train recipes/x.toml --rank 2 grpo.step=1") == wrong


def test_keys_exist():
    named = [re.match(r"([a-z]+)\.([a-z_]+)(?= |$)", each) for each in INLINE]
    keys = [match[0] for match in named if match and match[1] in SECTIONS | {"env"}]
    assert len(keys) > 8
    assert [key for key in keys if not is_key(key)] == []
    for block in (block for language, block in BLOCKS if language == "toml"):
        for section, table in tomllib.loads(block).items():
            assert [key for key in table if not is_key(f"{section}.{key}")] == []


def test_metrics_exist():
    named = [each for each in INLINE if re.fullmatch(r"[a-z]+/[a-z_]+", each)]
    assert len(named) > 5
    assert [each for each in named if f"`{each}`" not in metrics_page()] == []


def test_imports_of_its_python_exist():
    for block in (block for language, block in BLOCKS if language == "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom):
                assert all(hasattr(import_module(node.module), alias.name) for alias in node.names)


def test_every_question_answers_and_links_on():
    questions = PAGE.split("\n## ")[1:]
    assert len(questions) == 23
    assert all(re.search(r"\]\([^)]+\.md", answer.rpartition("More")[2]) for answer in questions)
