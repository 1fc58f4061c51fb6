"""Tasks in Harbor's format in containers of a real docker or podman: ``make test-containers``."""

import os
import shutil

import pytest
from folders import ROOT

from truing.envs import make_env
from truing.envs.program_env import Access

pytestmark = pytest.mark.containers

TASK = ROOT / "tests" / "data" / "harbor" / "count-lines"


@pytest.mark.parametrize(("work", "reward"), [("grep -c ''", 1.0), ("wc -c <", 0.0)])
def test_program_and_tests_run_in_a_container_each(work, reward, tmp_path):
    toml = shutil.copytree(TASK, tmp_path / "tasks" / "count-lines") / "task.toml"
    toml.write_text(toml.read_text().replace("= 30.0", "= 300.0"))  # a busy machine starts containers slowly
    env = make_env(
        "harbor",
        {
            "tasks": str(tmp_path / "tasks"),
            "command": ["sh", "-c", f"{work} /app/poem.txt > answer.txt; ls /tests > tests.txt; true"],
            "runtime": os.environ.get("TRUING_CONTAINER_RUNTIME", ""),
            "image": os.environ.get("TRUING_CONTAINER_IMAGE", ""),
            "files": ["*.txt"],
        },
    )
    (task,) = [*env.tasks("train"), *env.tasks("eval")]
    outcome = env.run(task, Access("http://127.0.0.1:9", "the-key"), f"counted-{reward:.0f}")
    assert outcome["tests"]["rewards"] == {"reward": reward}
    assert outcome["files"]["tests.txt"]["text"] == ""  # the program saw no tests
