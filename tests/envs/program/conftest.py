"""Environments of programs over a few rows."""

import json

import pytest

from truing.envs import make_env
from truing.envs.program_env import Access

ACCESS = Access("http://127.0.0.1:9", "the-key")


@pytest.fixture
def make(tmp_path):
    """An environment of programs; by default it runs the Python code of ``main.py``, which is given."""

    def env(code="", **keys):
        rows = tmp_path / "rows.jsonl"
        row = {"prompt": "one?", "answer": "SECRET-ANSWER", "source": "a book"}
        rows.write_text(
            "".join(json.dumps(row | {"id": f"t{i}", "prompt": f"{i}?"}) + "\n" for i in range(8))
        )
        folder = tmp_path / "folder"
        folder.mkdir(exist_ok=True)
        (folder / "main.py").write_text(code)
        if "function" not in keys:
            keys = {"command": ["{python}", "main.py"], "folder": str(folder)} | keys
        return make_env("program", {"data": str(rows), "rewards": {"r": {"kind": "exact"}}} | keys)

    return env


@pytest.fixture
def run():
    """Runs the program of an environment's first task."""

    def once(env, name="0/grpo/0/0/0", index=0):
        return env.run(env.tasks("train")[index], ACCESS, name)

    return once
