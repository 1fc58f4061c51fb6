"""The same agents against a server without Truing: nothing in them is made for it."""

import json
import os
import subprocess

import pytest
from clients.frameworks import ANSWER, FRAMEWORKS, QUESTION, VARIABLES
from clients.scripted_server import serving


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda each: each.name)
def test_an_agent_runs_without_truing(framework, command, tmp_path):
    with serving(framework.turns) as url:
        variables = {
            **VARIABLES,
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": "a-key",
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "a-key",
        }
        python, script, _ = command(framework.name)
        ended = subprocess.run(
            [python, script, QUESTION],
            env=variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1]) == {"answer": ANSWER}


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda each: each.name)
def test_an_agent_has_nothing_of_truing(framework, command):
    _, script, _ = command(framework.name)
    with open(script, encoding="utf-8") as file:
        assert "truing" not in file.read().lower()
