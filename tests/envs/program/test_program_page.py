"""The example of docs/programs.md runs as it stands, with a model that is a script."""

import re
import sys
import tomllib
from dataclasses import replace

import pytest
from folders import ROOT

from truing.config import resolve
from truing.envs import env_problems, make_env
from truing.envs.program_env import Access
from truing.rewards import grade

PAGE, HUBS = (ROOT / "docs" / "programs.md").read_text(encoding="utf-8").split("\n## Hubs\n")


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The files of the page, by their names, in the working directory; its recipe."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent").mkdir()
    monkeypatch.delitem(sys.modules, "reward", raising=False)
    blocks = re.findall(r"```(?:python|json|toml)\n(.*?)```", PAGE, re.DOTALL)
    names = ("agent/agent.py", "tasks.jsonl", "reward.py", "agent.toml", "function.py")
    for name, text in zip(names, blocks, strict=True):
        assert f"`{name}`" in PAGE or name == "function.py"
        (tmp_path / name).write_text(text, encoding="utf-8")
    return resolve(tomllib.loads((tmp_path / "agent.toml").read_text()), env_problems)


def test_the_example_of_the_page(example, model, rollout_of):
    keys = dict(example.env)
    env = make_env(keys.pop("name"), keys)
    task = env.tasks("train")[0]
    model.replies += [{"content": f" {task.answer}\n"}]
    outcome = env.run(task, Access(f"http://127.0.0.1:{model.server_port}", "k"), "page")
    asked = model.asked[0]["messages"][-1]["content"]
    assert asked == f"{task.messages[-1]['content']} Reply with the number only."
    assert grade(rollout_of(task, "", outcome=outcome), env.rewards).reward == 1.0


def test_the_function_of_the_page(example, model):
    keys = {"function": "function.py:run", "data": "tasks.jsonl", "rewards": example.env["rewards"]}
    env = make_env("program", keys)
    task = replace(env.tasks("train")[0], info={"unit": "metres"})
    model.replies += [{"content": "42"}]
    outcome = env.run(task, Access(f"http://127.0.0.1:{model.server_port}", "k"), "page")
    assert outcome["output"] == {"answer": "42"}
    assert model.asked[0]["messages"][-1]["content"].endswith(" Reply with the number only, in metres.")


def test_the_keys_of_the_hubs(monkeypatch):
    monkeypatch.chdir(ROOT)
    for text in re.findall(r"```toml\n(.*?)```", HUBS, re.DOTALL):
        table = tomllib.loads(text)["env"]
        assert env_problems(table) == []
