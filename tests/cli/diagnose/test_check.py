"""`truing check` on the command line."""

import json
from functools import cache
from typing import ClassVar

import pytest
from command import truing
from folders import ROOT

from truing.types.rollout import Task

RECIPES = ROOT / "recipes"
FEW = ("env.train=6", "env.eval=4", "eval.tasks=4")


@cache
def check(recipe):
    """The result of the command for one of our own recipes."""
    return truing("check", RECIPES / f"{recipe}.toml", *FEW)


@pytest.mark.integration
@pytest.mark.parametrize("recipe", ["tiny", "workspace-tiny"])
def test_our_own_recipes_are_clean(recipe):
    result = check(recipe)
    assert result.code == 0
    assert "✓ the demonstration scores full  10\n" in result.out
    assert "✗" not in result.out
    assert "0 rules found something, " in result.out
    assert "2 steps of grpo …" in result.err


def test_static_trains_nothing():
    result = truing("check", RECIPES / "tiny.toml", *FEW, "--static")
    assert (result.code, result.err) == (0, "")
    assert "rules" not in result.out
    assert "GB by their shapes (base" in result.out.splitlines()[-1]


def test_unchecked_parts_are_listed():
    lines = check("tiny").out.splitlines()
    at = lines.index("    not checked: tools: no task has any")
    assert lines[at - 1] == (
        "– tool names are one set, bad calls are answered, tools are shown in full, tool answers are shown"
    )


def test_findings_are_printed_in_full_with_exit_1():
    result = truing("check", RECIPES / "tiny.toml", *FEW, "sampling.max_new_tokens=1")
    assert result.code == 1
    assert "✗ demonstrations fit  10\n" in result.out
    finding = result.out.partition("\n\n")[2]
    assert finding.startswith("✗ demonstrations fit: ")
    for part in ("10 of 10 demonstrations", "got: 2 tokens", "expected: ≤ 1: ", "remedy: raise "):
        assert part in finding


def test_json_is_one_object():
    result = truing("check", RECIPES / "tiny.toml", *FEW, "sampling.max_new_tokens=1", "--json")
    assert result.code == 1
    facts = json.loads(result.out)
    assert list(facts) == ["recipe", "findings", "not_checked", "notes", "checked", "memory"]
    assert facts["memory"]["total"] == sum(facts["memory"][part] for part in facts["memory"]) / 2 > 0
    assert facts["recipe"] == "tiny"
    assert [each["check"] for each in facts["findings"]] == ["demonstrations fit"]
    assert facts["checked"]["the demonstration scores full"] == 10


def test_a_recipe_that_cannot_be_read_is_neither_clean_nor_a_finding():
    result = truing("check", RECIPES / "tiny.toml", "env.name=nowhere")
    assert (result.code, result.out) == (2, "")
    assert "nowhere" in result.err


class Hostile:
    """An environment whose task names have terminal control codes, and a reward that is broken."""

    notes = ()
    rewards: ClassVar = {"reward": (lambda rollout, task: None, 1.0)}

    def tasks(self, split):
        prompt = ({"role": "user", "content": f"{split}?"},)
        return [Task(f"\x1b[2J[red]{split}", "hostile", prompt, "1", "1")]


def test_of_many_findings_some_are_shown_and_none_commands_the_terminal(monkeypatch):
    monkeypatch.setattr("truing.api.env_from_recipe", lambda recipe: Hostile())
    result = truing("check", RECIPES / "tiny.toml")
    assert result.code == 1
    assert "\x1b" not in result.out
    assert result.out.count(r"✗ rollouts can be played and graded: \x1b[2J[red]") == 3
    assert "and 1 more: --json lists all" in result.out
