"""The command that starts a server, and a server that runs as a process of its own."""

import os
import signal
import sys

import pytest
import torch
from peft_adapters import save_adapter

from truing.engines.base import Request, generate
from truing.engines.vllm.server_process import (
    CHILD_SERVER,
    OPENAI_SERVER,
    server_command,
    server_variables,
    visible_gpus,
)
from truing.errors import EngineError
from truing.models.resolve import resolve_model
from truing.models.tiny import tiny_model
from truing.models.tiny_moe import tiny_moe_model
from truing.types.sampling_params import SamplingParams


def options(command):
    """The options of a command: name to value, or to True."""
    found = {}
    for word, following in zip(command, [*command[1:], "--"], strict=True):
        if word.startswith("--"):
            found[word.removeprefix("--")] = True if following.startswith("--") else following
    return found


@pytest.fixture
def command(recipe, tmp_path):
    tiny_model().config.save_pretrained(tmp_path)

    def make(device="cpu", module=CHILD_SERVER, **changes):
        engine = {"kind": "vllm", **changes.pop("engine", {})}
        return server_command(recipe(engine=engine, **changes), tmp_path, device, 8123, module)

    return make


def test_a_server_on_a_cpu(command, tmp_path):
    made = command()
    assert made[:3] == [sys.executable, "-m", "truing_vllm_serve"]
    assert options(made) == {
        "model": str(tmp_path),
        "served-model-name": "tiny",
        "host": "127.0.0.1",
        "port": "8123",
        "dtype": "float32",
        "max-logprobs": "20",
        "logprobs-mode": "processed_logprobs",
        "generation-config": "vllm",
        "worker-extension-cls": "truing_vllm_worker.TruingWorker",
        "enable-scale-out": True,
        "skip-tokenizer-init": True,
        "enforce-eager": True,
        "no-enable-chunked-prefill": True,
    }


def test_a_server_on_cuda(command):
    made = options(command("cuda"))
    assert made["dtype"] == "bfloat16"
    assert not {"enforce-eager", "no-enable-chunked-prefill"} & made.keys()
    assert "enable-return-routed-experts" not in made


@pytest.mark.parametrize(("device", "asked"), [("cuda", True), ("cpu", False)])
def test_a_server_of_a_mixture_is_asked_for_routes_where_it_can_return_them(command, tmp_path, device, asked):
    tiny_moe_model().config.save_pretrained(tmp_path)
    assert ("enable-return-routed-experts" in options(command(device))) == asked
    declined = options(command(device, engine={"arguments": {"enable-return-routed-experts": False}}))
    assert "enable-return-routed-experts" not in declined


def test_by_default_it_computes_as_the_trainer_does(command):
    assert options(command(model={"dtype": "bfloat16"}))["dtype"] == "bfloat16"
    assert options(command(model={"dtype": "bfloat16"}, engine={"dtype": "float32"}))["dtype"] == "float32"


def test_a_declared_dtype_and_top_k(command):
    made = options(command(engine={"dtype": "float16"}, sampling={"top_k": 64}))
    assert (made["dtype"], made["max-logprobs"]) == ("float16", "136")  # and ids that equal the last one


@pytest.mark.parametrize(
    ("rank", "held"), [(1, "8"), (8, "8"), (9, "16"), (33, "64"), (300, "320"), (512, "512")]
)
def test_the_rank_is_the_next_that_vllm_knows(command, rank, held):
    made = options(command(lora={"rank": rank}))
    assert (made["enable-lora"], made["max-lora-rank"], made["max-loras"]) == (True, held, "1")


def test_a_saved_adapter_has_the_rank_of_its_largest_layer(command, tmp_path):
    save_adapter(resolve_model("tiny"), tmp_path / "adapter", rank_pattern={"q_proj": 20})
    made = options(command(lora={"adapter": str(tmp_path / "adapter")}))
    assert (made["enable-lora"], made["max-lora-rank"]) == (True, "32")


def test_a_rank_beyond_vllm_is_refused(command):
    with pytest.raises(EngineError, match="rank") as error:
        command(lora={"rank": 513})
    assert error.value.expected == "≤ 512"


def test_arguments_of_the_recipe_come_last_and_replace(command):
    arguments = {
        "gpu_memory_utilization": 0.5,
        "enforce-eager": False,
        "max-logprobs": 50,
        "async-scheduling": True,
    }
    made = options(command(engine={"arguments": arguments}))
    assert made["gpu-memory-utilization"] == "0.5"
    assert "enforce-eager" not in made
    assert made["max-logprobs"] == "50"
    assert made["async-scheduling"] is True


def test_an_interpreter_that_is_not_there(command):
    with pytest.raises(EngineError, match="names no interpreter") as error:
        command(engine={"python": "/nowhere/python"})
    assert error.value.got == "/nowhere/python"


def test_the_module_is_vllm_s_own_for_a_server_that_stays(command):
    assert command(module=OPENAI_SERVER)[2] == "vllm.entrypoints.openai.api_server"


def test_a_server_of_several_gpus(command, monkeypatch):
    assert options(command("cuda", engine={"tensor_parallel": 2}))["tensor-parallel-size"] == "2"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    assert visible_gpus(torch.device("cuda:1"), 1) == {"CUDA_VISIBLE_DEVICES": "5"}
    assert visible_gpus(torch.device("cuda:1"), 2) == {"CUDA_VISIBLE_DEVICES": "5,6"}
    with pytest.raises(EngineError, match="more GPUs than there are") as error:
        visible_gpus(torch.device("cuda:1"), 3)
    assert error.value.expected == "3, engine.tensor_parallel"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert visible_gpus(torch.device("cuda"), 2) == {"CUDA_VISIBLE_DEVICES": "0,1"}


def test_workers_on_a_cpu_share_its_cores(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert server_variables("cpu", 2)["VLLM_CPU_OMP_THREADS_BIND"] == "0,2|1,3"
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    assert server_variables("cpu", 2)["VLLM_CPU_OMP_THREADS_BIND"] == "0|0"


def test_what_a_server_finds_in_its_environment(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/mine")
    made = server_variables("cpu", 1)
    worker, mine = made["PYTHONPATH"].split(os.pathsep)
    assert os.path.exists(f"{worker}/truing_vllm_worker.py")
    assert mine == "/mine"
    assert made["VLLM_SERVER_DEV_MODE"] == made["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
    assert "VLLM_CPU_KVCACHE_SPACE" in made
    assert "VLLM_CPU_KVCACHE_SPACE" not in server_variables("cuda", 1)


@pytest.fixture
def interpreter(tmp_path):
    """``interpreter("exit 3")``: one that has vLLM, and runs some shell in place of any module."""

    def write(shell):
        script = tmp_path / "python"
        script.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit 0\nshift 2\n{shell}\n')
        script.chmod(0o755)
        return str(script)

    return write


@pytest.mark.integration
def test_a_server_is_started_killed_and_started_again(opened, interpreter):
    python = interpreter(f'exec {sys.executable} -m dev.faults.fake_vllm "$@"')
    engine, _ = opened(lora={"rank": 4}, engine={"python": python, "timeout": 120.0})
    (server,) = engine.servers
    process = server._process._process
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    requests = [Request(torch.arange(20 + i), ("key", i)) for i in range(4)]
    assert len(generate(engine, requests, SamplingParams(max_new_tokens=3))) == 4
    incidents = engine.take_incidents()  # one more: the untrained adapter cannot be told from the base
    assert sum("it runs again, and weights of version 0 are proven again" in text for text in incidents) == 1
    started = server._process._process
    assert started.pid != process.pid
    engine.close()
    assert started.poll() is not None  # it ends with the engine


@pytest.mark.integration
def test_a_server_that_cannot_start_says_why(opened, interpreter):
    with pytest.raises(EngineError, match="did not start") as error:
        opened(engine={"python": interpreter("echo out of memory; exit 3")})
    assert "exit code 3" in str(error.value.got)
    assert "out of memory" in str(error.value.got)


@pytest.mark.integration
def test_a_server_that_does_not_answer_in_time_is_stopped(opened, interpreter, tmp_path):
    pid = tmp_path / "pid"
    python = interpreter(f"echo $$ > {pid}; exec sleep 60")
    with pytest.raises(EngineError, match=r"engine.timeout = 1 s"):
        opened(engine={"python": python, "timeout": 1.0})
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_an_interpreter_without_vllm_is_refused(opened):
    with pytest.raises(EngineError, match="has no vLLM") as error:
        opened(engine={"python": sys.executable})
    assert error.value.remedy
