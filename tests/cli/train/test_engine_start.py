"""`truing engine start`: the command of a server that a recipe can sample with."""

import sys

from command import truing
from folders import ROOT

from truing.config import to_toml
from truing.config.loader import resolve


def test_the_command_is_printed_and_nothing_starts(mini, tmp_path):
    recipe = tmp_path / "recipe.toml"
    servers = ["http://127.0.0.1:8017"]
    recipe.write_text(to_toml(resolve(mini(engine={"kind": "vllm", "servers": servers}, lora={"rank": 4}))))
    result = truing("engine", "start", str(recipe), "--print")
    assert result.code == 0
    assert f"{sys.executable} -m vllm.entrypoints.openai.api_server" in result.out
    assert "VLLM_SERVER_DEV_MODE=1" in result.out
    assert "--port 8017" in result.out
    assert "--max-lora-rank 8" in result.out
    assert "--port 9000" in truing("engine", "start", str(recipe), "--print", "--port", "9000").out


def test_a_recipe_without_vllm_needs_no_server():
    result = truing("engine", "start", str(ROOT / "recipes" / "tiny.toml"), "--print")
    assert result.code == 2
    assert "engine.kind=vllm" in result.err
