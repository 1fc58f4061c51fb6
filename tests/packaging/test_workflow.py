"""The GitHub workflow runs what `.ci/run` runs, and a bug report asks for `truing env`."""

import os
import re

import yaml
from folders import ROOT

JOBS = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))["jobs"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def commands(job):
    return [step["run"] for step in JOBS[job]["steps"] if "run" in step]


def python_of(job):
    return [
        step["with"]["python-version"]
        for step in JOBS[job]["steps"]
        if "setup-python" in step.get("uses", "")
    ]


def test_the_workflow_calls_ci_run_on_the_oldest_python():
    assert commands("test") == [".ci/run"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert python_of("test") == ["3.11"]
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_every_target_that_ci_makes_is_in_the_makefile():
    wanted = re.findall(r"make ([\w-]+)", CI + "\n".join(commands("dependencies")))
    assert {"test", "test-integration", "test-engines", "test-wheel", "sbom", "audit"} <= set(wanted)
    assert not [target for target in wanted if not re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)]


def test_the_workflow_builds_the_docker_image_that_exists():
    files = re.findall(r"-f (\S+)", " ".join(commands("docker")))
    assert files
    assert all((ROOT / file).is_file() for file in files)


def test_a_bug_report_asks_for_the_output_of_truing_env():
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml").read_text(encoding="utf-8"))
    (asked,) = (part for part in form["body"] if part["id"] == "env")
    assert "truing env" in asked["attributes"]["label"]
    assert asked["validations"]["required"]
