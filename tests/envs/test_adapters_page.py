"""The examples of docs/adapters.md are run as they stand, but for OpenEnv's, which needs a server."""

import json
import os
import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from command import truing
from folders import ROOT

from truing.envs import ENVS, checked_tasks, make_env
from truing.errors import RecipeError
from truing.rewards import grade
from truing.types.message import AssistantMessage, ToolCall

PAGE = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")

PACKAGES = {
    "reasoning_gym": ("reasoning_gym", "tasks", {"task": "chain_sum"}),
    "mcp": ("mcp", "mcp", {"servers": {"a": {"command": ["python"]}}, "data": "rows.jsonl"}),
    "verifiers": ("verifiers", "verifiers", {"taskset": "example"}),
    "openenv": ("openenv.core", "openenv", {"url": "http://127.0.0.1:9"}),
}


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Write the example of a section to an empty folder, and go there; its [env] as a recipe gives it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "example", raising=False)

    def write(name):
        section = PAGE.split(f"\n## {name}:")[1].split("\n## ")[0]
        (tmp_path / "example.py").write_text(re.search(r"```python\n(.*?)```", section, re.DOTALL)[1])
        toml = re.search(r"```toml\n(.*?)```", section, re.DOTALL)[1]
        return toml, tomllib.loads(toml)

    return write


def test_the_mcp_server_of_the_page(example, tmp_path, rollout_of):
    toml, keys = example("mcp")
    row = re.search(r"# (\{.*\})", toml)[1]
    other = json.loads(row) | {"prompt": "How many forks are there?", "answer": "12"}
    (tmp_path / "rows.jsonl").write_text(f"{row}\n{json.dumps(other)}")
    _, *arguments = keys["servers"]["stock"]["command"]
    keys["servers"]["stock"]["command"] = [sys.executable, *arguments]
    env = make_env(keys.pop("name"), keys)
    (task,) = [task for tasks in checked_tasks(env).values() for task in tasks if task.answer == "7"]
    (told,) = env.open(task).reply(AssistantMessage(calls=(ToolCall("count", {"item": "cups"}),)))
    assert told["content"] == "7"
    assert grade(rollout_of(task, "7"), env.rewards)[0] == 1


@pytest.mark.integration
def test_the_taskset_of_the_page(example, rollout_of):
    _, keys = example("verifiers")
    env = make_env(keys.pop("name"), keys)
    task = checked_tasks(env)["train"][0]
    word = task.messages[-1]["content"].removeprefix("Say ")
    for said, reward in ((word, 1.0), ("no", 0.0)):
        rollout = rollout_of(task, said)
        assert grade(replace(rollout, messages=(AssistantMessage(said).to_dict(),)), env.rewards)[0] == reward


def test_the_page_names_real_keys_of_openenv():
    toml = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[-1]
    keys = tomllib.loads(toml)
    ENVS[keys.pop("name")].Config.model_validate(keys)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_that_is_not_installed_is_named_with_its_extra(name, monkeypatch, tmp_path):
    module, extra, keys = PACKAGES[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}')
    for loaded in [each for each in sys.modules if each.partition(".")[0] == module.partition(".")[0]]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module.partition(".")[0], None)
    with pytest.raises(RecipeError, match=rf"pip install truing\[{extra}\]"):
        make_env(name, keys)


@pytest.mark.integration
def test_the_page_on_mcp_can_be_followed(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8")
    blocks = [text for _, text in re.findall(r"```(\w*)\n(.*?)```", page, re.DOTALL)]
    for name, text in zip(("stock.py", "items.jsonl", "stock.toml"), blocks, strict=False):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)  # `python` of the page
    _, command = blocks[3].strip().splitlines()
    checked = truing(*command.split()[1:])
    assert checked.code == 0, checked.err
