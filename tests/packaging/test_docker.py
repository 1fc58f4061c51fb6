"""The Dockerfiles: what they copy exists, and the steps of the CPU image run in a scratch folder."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from folders import ROOT

FILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
KEPT = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]


def steps(file, instruction):
    """The arguments of each instruction of this name, with lines joined and without comments."""
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return re.findall(rf"^{instruction} (.+)$", joined, re.MULTILINE)


def test_there_is_an_image_for_the_cpu_and_one_for_cuda():
    assert [file.name for file in FILES] == ["cpu.Dockerfile", "cuda.Dockerfile"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_image_starts_truing_as_a_user_other_than_root(file):
    assert steps(file, "ENTRYPOINT") == ['["truing"]']
    assert steps(file, "USER") == ["1000"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_image_has_the_uv_and_the_python_of_the_repository(file):
    uv = re.search(r"uv==\S+", (ROOT / "Makefile").read_text(encoding="utf-8"))[0]
    assert uv in steps(file, "RUN")[0]
    assert {step.split()[0] for step in steps(file, "FROM")} == {"python:3.11-slim"}


def test_docker_gets_what_the_build_reads():
    assert all((ROOT / name).exists() for name in KEPT)
    assert {"pyproject.toml", "README.md", "LICENSE", "constraints.txt", "src"} <= set(KEPT)


@pytest.mark.slow
def test_the_steps_of_the_cpu_image_give_an_environment_that_works(tmp_path):
    """Without Docker: the build stage's RUN steps, in folders of the test instead of /opt and /src."""
    source, target = tmp_path / "src", tmp_path / "truing"
    source.mkdir()
    for name in KEPT:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    for step in steps(ROOT / "docker" / "cpu.Dockerfile", "RUN"):
        here = re.sub(r"(?<![\w/])/src\b", str(source), step.replace("/opt/truing", str(target)))
        done = subprocess.run(["sh", "-ec", here], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    work = tmp_path / "work"
    work.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    train = [target / "bin" / "truing", "train", "tiny", "sft.steps=2", "grpo.steps=2", "eval.tasks=8"]
    subprocess.run(train, cwd=work, env=kept | {"HOME": str(work), "USER": "truing"}, check=True)
    assert [path.name for path in Path(work, "runs").iterdir()]
