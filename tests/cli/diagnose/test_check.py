"""`truing check` as a user meets it."""

import json
from typing import ClassVar

import pytest
from command import truing
from folders import ROOT

from truing.types.rollout import Task

RECIPES = ROOT / "recipes"
FEW = ("env.train=6", "env.eval=4")


@pytest.mark.parametrize("recipe", ["tiny", "workspace-tiny"])
def test_our_own_recipes_are_clean(recipe):
    told = truing("check", RECIPES / f"{recipe}.toml", *FEW)
    assert told.code == 0
    assert "✓ the demonstration scores full  10\n" in told.out
    assert "✗" not in told.out
    assert "0 rules found something, " in told.out
    assert "2 updates of grpo …" in told.err


def test_nothing_is_trained_where_that_is_asked():
    told = truing("check", RECIPES / "tiny.toml", *FEW, "--static")
    assert (told.code, told.err) == (0, "")
    assert "rules" not in told.out


def test_what_was_not_checked_is_said():
    told = truing("check", RECIPES / "tiny.toml", *FEW)
    assert "– tools are shown in full\n    not checked: tools: no task has any\n" in told.out


def test_findings_are_told_in_full_and_exit_1():
    told = truing("check", RECIPES / "tiny.toml", *FEW, "sampling.max_new_tokens=1")
    assert told.code == 1
    assert "✗ demonstrations fit  10\n" in told.out
    finding = told.out.partition("\n\n")[2]
    assert finding.startswith("✗ demonstrations fit: ")
    for part in ("10 of 10 demonstrations", "got: 2 tokens", "expected: ≤ 1: ", "remedy: raise "):
        assert part in finding


def test_json_is_one_object():
    told = truing("check", RECIPES / "tiny.toml", *FEW, "sampling.max_new_tokens=1", "--json")
    assert told.code == 1
    facts = json.loads(told.out)
    assert list(facts) == ["recipe", "findings", "not_checked", "notes", "checked"]
    assert facts["recipe"] == "tiny"
    assert [each["check"] for each in facts["findings"]] == ["demonstrations fit"]
    assert facts["checked"]["the demonstration scores full"] == 10


def test_a_recipe_that_cannot_be_read_is_neither_clean_nor_a_finding():
    told = truing("check", RECIPES / "tiny.toml", "env.name=nowhere")
    assert (told.code, told.out) == (2, "")
    assert "nowhere" in told.err


class Hostile:
    """An environment whose tasks have names that would command a terminal, and a reward that is broken."""

    notes = ()
    rewards: ClassVar = {"reward": (lambda rollout, task: None, 1.0)}

    def tasks(self, split):
        asked = ({"role": "user", "content": f"{split}?"},)
        return [Task(f"\x1b[2J[red]{split}", "hostile", asked, "1", "1")]


def test_of_many_findings_some_are_shown_and_none_commands_the_terminal(monkeypatch):
    monkeypatch.setattr("truing.api.env_from_recipe", lambda recipe: Hostile())
    told = truing("check", RECIPES / "tiny.toml")
    assert told.code == 1
    assert "\x1b" not in told.out
    assert told.out.count(r"✗ attempts can be played and graded: \x1b[2J[red]") == 3
    assert "and 1 more: --json lists all" in told.out
