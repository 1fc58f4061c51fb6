"""`truing env`: what a bug report needs, and nothing that is secret."""

import json
import platform
import sys
from importlib.metadata import version

import pytest
import torch
from command import truing

from truing.cli.diagnose import env


def facts(*words):
    result = truing("env", "--json", *words)
    assert (result.code, result.err) == (0, "")
    return json.loads(result.out)


def test_versions_are_those_of_this_process():
    shown = facts()
    assert shown["truing"] == "0.1.0"
    assert shown["python"].startswith(platform.python_version())
    assert shown["libraries"]["transformers"] == version("transformers")
    assert shown["libraries"]["peft"] == version("peft")
    assert shown["torch"]["version"] == torch.__version__
    assert shown["torch"]["cuda"] == torch.version.cuda
    assert "engine" not in shown


def test_a_package_that_is_not_installed_has_no_version(monkeypatch):
    monkeypatch.setattr(env, "LIBRARIES", ("peft", "no-such-package-of-truing"))
    assert facts()["libraries"] == {"peft": version("peft"), "no-such-package-of-truing": None}
    assert "  no-such-package-of-truing: none\n" in truing("env").out


def test_the_machine_has_its_cpu_cores_and_memory(tmp_path, monkeypatch):
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Example CPU 9\n")
    monkeypatch.setattr(env, "CPU_INFO", info)
    machine = facts()["machine"]
    assert machine["cpu"] == "Example CPU 9"
    assert machine["cores"] >= 1
    assert 0 < machine["free_gb"] <= machine["memory_gb"]
    monkeypatch.setattr(env, "CPU_INFO", tmp_path / "missing")
    assert facts()["machine"]["cpu"] == platform.machine()


def test_a_cuda_device_is_shown_with_its_memory(monkeypatch):
    class Properties:
        name, total_memory, major, minor = "Example GPU", 24 * 10**9, 9, 0

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Properties)
    assert facts()["torch"]["devices"] == ["Example GPU, 24.0 GB, compute capability 9.0"]
    assert "  devices: Example GPU, 24.0 GB, compute capability 9.0\n" in truing("env").out


def test_values_are_shown_of_known_settings_only():
    given = {
        "OMP_NUM_THREADS": "2",
        "HF_TOKEN": "a secret",
        "WANDB_API_KEY": "a secret",
        "TRUING_CACHE": "/home/somebody",
        "MY_PASSWORD": "a secret",
        "HOME": "/home/somebody",
    }
    assert env.variable_facts(given) == {
        "HF_TOKEN": "(set)",
        "OMP_NUM_THREADS": "2",
        "TRUING_CACHE": "(set)",
        "WANDB_API_KEY": "(set)",
    }


def test_no_value_of_an_unknown_variable_is_printed(monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "sesame-4711")
    monkeypatch.setenv("OMP_NUM_THREADS", "3\n\x1b[2J")
    for words in ((), ("--json",)):
        out = truing("env", *words).out
        assert "VLLM_API_KEY" in out
        assert "sesame" not in out
        assert "\x1b" not in out
    assert "  OMP_NUM_THREADS: 3\\n\\x1b[2J\n" in truing("env").out


def test_the_python_of_an_engine_prints_its_own_versions():
    engine = facts("--engine-python", sys.executable)["engine"]
    assert engine["python"] == platform.python_version()
    assert (engine["torch"], engine["transformers"]) == (version("torch"), version("transformers"))


@pytest.mark.parametrize(
    "script", [None, "#!/bin/sh\necho no python >&2; exit 7\n", "#!/bin/sh\necho hello\n"]
)
def test_what_is_no_python_is_an_error_with_the_remedy(tmp_path, script):
    python = tmp_path / "python"
    if script is not None:
        python.write_text(script)
        python.chmod(0o755)
    result = truing("env", "--engine-python", python)
    assert result.code == 2
    assert f"{python} does not print its versions" in result.err
    assert "engine.python" in result.err
    assert ("no python" in result.err) == (script is not None and "exit 7" in script)
