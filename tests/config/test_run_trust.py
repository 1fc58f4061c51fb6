"""A run directory starts, imports and contacts nothing without the user's word."""

import json

import pytest
import tomli_w
from command import truing as command

from truing.config import resolve
from truing.config.run_trust import outside_actions

BASE = {
    "name": "mine",
    "stages": ["grpo"],
    "model": {"name": "tiny"},
    "grpo": {"steps": 1, "learning_rate": 1e-3},
}
JUDGE = {"base_url": "http://elsewhere/v1", "model": "m", "api_key_env": "HOME"}
ACTIONS = {
    "starts sh -c echo (env.servers.a.command)": {
        "env": {"name": "mcp", "servers": {"a": {"command": ["sh", "-c", "echo"]}}}
    },
    "connects to http://elsewhere (env.servers.b.url)": {
        "env": {"name": "mcp", "servers": {"a": {"command": ["true"]}, "b": {"url": "http://elsewhere"}}}
    },
    "connects to http://elsewhere (env.url)": {"env": {"name": "openenv", "url": "http://elsewhere"}},
    "imports theirs.env:Env (env.name)": {"env": {"name": "theirs.env:Env"}},
    "imports theirs (env.taskset)": {"env": {"name": "verifiers", "taskset": "theirs"}},
    "imports theirs:reward (env.rewards.a.kind)": {
        "env": {"name": "x", "rewards": {"a": {"kind": "theirs:reward"}}}
    },
    "imports theirs:tool (env.tools)": {"env": {"name": "x", "tools": ["theirs:tool"]}},
    "connects to http://elsewhere/v1 (env.judge.base_url)": {"env": {"name": "dual", "judge": JUDGE}},
    "sends the key in the environment variable HOME (env.judge.api_key_env)": {
        "env": {"name": "dual", "judge": JUDGE}
    },
    "starts /theirs/python (engine.python)": {"engine": {"kind": "vllm", "python": "/theirs/python"}},
    "starts vLLM with worker-extension-cls=theirs (engine.arguments)": {
        "engine": {"kind": "vllm", "arguments": {"worker-extension-cls": "theirs"}}
    },
    "connects to http://elsewhere http://there (engine.servers)": {
        "engine": {"kind": "vllm", "servers": ["http://elsewhere", "http://there"]}
    },
}


@pytest.mark.parametrize("action", ACTIONS)
def test_what_a_recipe_starts_imports_and_contacts_is_named(action):
    recipe = resolve({**BASE, "env": {"name": "arithmetic"}} | ACTIONS[action])
    assert action in list(outside_actions(recipe))


def test_a_built_in_environment_leads_nowhere():
    table = {"name": "gsm8k", "path": "data:set/rows.jsonl", "prompt": "Answer: yes or no"}
    assert list(outside_actions(resolve({**BASE, "env": table}))) == []


@pytest.fixture
def foreign(trained_run, tmp_path):
    """A run whose recipe starts a program that leaves a file, and the file."""
    run, proof = trained_run("run").run, tmp_path / "proof"
    rows = [json.dumps({"prompt": f"{i}?", "answer": "1"}) for i in range(8)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    facts = json.loads((run / "run.json").read_text())
    facts["recipe"]["env"] = {
        "name": "mcp",
        "data": str(tmp_path / "rows.jsonl"),
        "servers": {"own": {"command": ["touch", str(proof)]}},
    }
    (run / "run.json").write_text(json.dumps(facts))
    changed = {key: value for key, value in facts["recipe"].items() if value is not None}
    (run / "recipe.toml").write_text(tomli_w.dumps(_set_values(changed)))
    return run, proof


def _set_values(table):
    """The table without None, which TOML cannot hold."""
    return {
        key: _set_values(value) if isinstance(value, dict) else value
        for key, value in table.items()
        if value is not None
    }


@pytest.mark.parametrize("verb", ["eval", "bisect"])
def test_a_run_that_starts_a_program_is_refused_and_says_which(verb, foreign):
    run, proof = foreign
    outcome = command(verb, run)
    assert outcome.code != 0
    assert f"starts touch {proof} (env.servers.own.command)" in outcome.err
    assert "--trust" in outcome.err
    assert not proof.exists()


@pytest.mark.parametrize("verb", ["eval", "bisect"])
def test_a_trusted_run_is_opened(verb, foreign):
    outcome = command(verb, foreign[0], "--trust")
    assert outcome.code != 0  # the program is no server
    assert "the MCP server own (touch" in outcome.err


@pytest.mark.parametrize("named", ["/etc", "..", "someone/on-the-hub", "tokenizer/tokenizer.json"])
def test_tokens_reads_no_tokenizer_outside_the_run(named, trained_run):
    run = trained_run("run").run
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(facts | {"tokenizer": named}))
    outcome = command("tokens", run)
    assert outcome.code != 0
    assert "is not in the run directory" in outcome.err
