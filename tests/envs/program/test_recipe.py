"""The agent of recipes/program, with a model that is a script."""

import json

from folders import ROOT

from truing.config import load_recipe
from truing.envs import make_env
from truing.envs.program_env import Access
from truing.rewards import grade


def call(fruit):
    function = {"name": "price", "arguments": json.dumps({"fruit": fruit})}
    return {"content": None, "tool_calls": [{"id": "c1", "type": "function", "function": function}]}


def test_the_agent_looks_a_price_up_and_is_graded(model, monkeypatch, rollout_of):
    monkeypatch.chdir(ROOT)
    keys = dict(load_recipe("recipes/program/recipe.toml").env)
    env = make_env(keys.pop("name"), keys)
    task = env.tasks("train")[0]
    fruit, price = task.info["fruit"], str(task.answer)
    model.replies += [call("a stone"), call(fruit), {"content": price}]
    outcome = env.run(task, Access(f"http://127.0.0.1:{model.server_port}", "k"), "recipe")
    assert outcome["output"] == {"answer": price}
    assert outcome["files"] == {"looked_up.txt": {"size": len(fruit) + 1, "text": f"{fruit}\n"}}
    assert [each["messages"][-1]["content"] for each in model.asked] == [
        f"What is the price of one {fruit}?",
        "error: KeyError('a stone')",
        price,
    ]
    parts = grade(rollout_of(task, price, outcome=outcome), env.rewards).parts
    assert parts == {"right": 1.0, "digits": 1.0, "looked_up": 1.0}
