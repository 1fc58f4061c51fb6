"""The page docs/tasks.md is run as it stands."""

import re

import pytest
from folders import ROOT

import truing
from truing.config import load_recipe
from truing.envs import ENVS, Env, checked_tasks
from truing.envs.base import MultiTurnEnv
from truing.types.message import AssistantMessage, ToolCall

OWN = ROOT / "recipes" / "own.toml"
PAGE = ROOT / "docs" / "tasks.md"


def test_the_examples_of_the_page_run_and_make_an_environment():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 7
    names = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert isinstance(names["Capitals"](), Env)
    assert not isinstance(names["Capitals"](), MultiTurnEnv)
    phonebook = names["Phonebook"]()
    assert isinstance(phonebook, MultiTurnEnv)
    assert len(checked_tasks(phonebook)["train"]) == 3
    episode, (call, answer) = phonebook.open(phonebook.task("Ann")), phonebook.task("Ann").demonstration
    assert [message["content"] for message in episode.reply(call)] == ["12"]
    assert list(episode.reply(answer)) == []
    stranger = AssistantMessage(calls=(ToolCall("lookup", {"name": "Zoe"}),))
    assert [message["content"] for message in episode.reply(stranger)] == ["Error: no number for 'Zoe'"]

    shelves = names["Shelves"]()
    assert list(truing.check(OWN, env=shelves)["the demonstration scores full"].missing) == []
    assert truing.check(OWN, env=shelves, rewards=[names["brief"]]).findings != []
    assert truing.check(load_recipe(OWN, ["eval.tasks=0"]), env=shelves).findings == []


def test_the_files_that_the_page_links_to_exist():
    links = re.findall(r"\]\((\.\./[^)]+)\)", PAGE.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (PAGE.parent / link).exists()] == []


@pytest.mark.parametrize("name", ENVS)
def test_every_environment_of_the_table_is_in_a_file_or_folder_of_its_name(name):
    assert name in ENVS[name].__module__.split(".")
    assert all(field.annotation is not None for field in ENVS[name].Config.model_fields.values())
