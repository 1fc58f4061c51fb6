"""Start a vLLM server on this machine: its command, its environment, and the wait until it answers."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import torch

from truing.config import Recipe
from truing.engines.vllm.client import VllmClient
from truing.engines.vllm.moe import has_experts
from truing.engines.vllm.params import with_ties
from truing.errors import EngineError
from truing.models.adapter_config import largest_rank, read_config
from truing.utils.end_with_parent import child_variables, end_group

WORKER = Path(__file__).parent / "worker"
"""Folder on vLLM's PYTHONPATH: the methods that a server runs for Truing."""

OPENAI_SERVER, CHILD_SERVER = "vllm.entrypoints.openai.api_server", "truing_vllm_serve"
"""Modules that run a server: vLLM's own, and one that ends with its parent."""

DEFAULT_PORT = 8000

LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Values of ``--max-lora-rank`` that vLLM knows."""

CPU_CACHE_GB = 2
"""Gigabytes for keys and values on a CPU, unless VLLM_CPU_KVCACHE_SPACE says otherwise."""

LOG_LINES = 12
"""Lines of a server's log in an error."""

STOP_SECONDS = 20.0
"""Seconds that a server may take to stop."""


def server_command(
    recipe: Recipe, folder: Path, device: str, port: int, module: str, host: str = "127.0.0.1"
) -> list[str]:
    """Return the command that starts a server.

    Args:
        recipe: its ``[engine]`` says how.
        folder: of the model.
        device: cpu or cuda, of the trainer.
        port: to listen on.
        module: the Python module to run: ``OPENAI_SERVER``, or ``CHILD_SERVER``.
        host: the address to listen on; by default this machine alone reaches it.
    """
    cfg = recipe.engine
    computing = recipe.model.dtype if device == "cpu" else "bfloat16"
    dtype = cfg.dtype if cfg.dtype != "auto" else computing
    options: dict[str, object] = {
        "model": folder,
        "served-model-name": recipe.model.name,
        "host": host,
        "port": port,
        "dtype": dtype,
        "tensor-parallel-size": cfg.tensor_parallel if cfg.tensor_parallel > 1 else False,
        "max-logprobs": max(20, with_ties(recipe.sampling.top_k)),
        "logprobs-mode": "processed_logprobs",  # of the distribution that it samples from
        "generation-config": "vllm",  # nothing of the model's generation_config.json
        "worker-extension-cls": "truing_vllm_worker.TruingWorker",
        "enable-scale-out": True,  # the endpoint that takes and returns ids
        "skip-tokenizer-init": True,  # ids go in and out, so it needs no tokenizer
        "enforce-eager": device == "cpu",
        # vLLM 0.32 ends on a CPU where it cuts the prompt of a request that has a seed
        "no-enable-chunked-prefill": device == "cpu",
        # the CPU build's model runner has no routes to return: the worker records them
        "enable-return-routed-experts": device != "cpu" and has_experts(folder),
        "enable-sleep-mode": cfg.sleep and device != "cpu",  # vLLM ignores it on a CPU
    }
    if recipe.lora:
        options |= {"enable-lora": True, "max-lora-rank": _lora_rank(adapter_rank(recipe)), "max-loras": 1}
    options |= {name.replace("_", "-"): value for name, value in cfg.arguments.items()}
    command = [_python(cfg.python), "-m", module]
    for name, value in options.items():
        if value is not False:
            command += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return command


def server_variables(device: str, workers: int) -> dict[str, str]:
    """Return the environment variables that a server of so many workers needs, beside this process's own."""
    paths = [str(WORKER), *filter(None, [os.environ.get("PYTHONPATH")])]
    on_cpu = {"VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", str(CPU_CACHE_GB))}
    if workers > 1:  # by default vLLM needs a NUMA node for each
        cores = sorted(os.sched_getaffinity(0))
        shares = [",".join(map(str, cores[worker::workers] or cores)) for worker in range(workers)]
        on_cpu["VLLM_CPU_OMP_THREADS_BIND"] = os.environ.get("VLLM_CPU_OMP_THREADS_BIND", "|".join(shares))
    return {
        "PYTHONPATH": os.pathsep.join(paths),
        "VLLM_SERVER_DEV_MODE": "1",  # collective_rpc, weight versions, reset_prefix_cache
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_NO_USAGE_STATS": "1",
        **(on_cpu if device == "cpu" else {}),
    }


def visible_gpus(device: torch.device, workers: int) -> dict[str, str]:
    """Return the environment variable that shows a server its GPUs alone, from the trainer's on.

    Raises:
        EngineError: There are not so many.
    """
    if device.type == "cpu":
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
    gpus = visible.split(",")[device.index or 0 :][:workers]
    if len(gpus) < workers:
        raise EngineError(
            "a vLLM server needs more GPUs than there are",
            got=f"{len(gpus)} from the trainer's on",
            expected=f"{workers}, engine.tensor_parallel",
            remedy="lower engine.tensor_parallel, or start servers elsewhere and name them in engine.servers",
        )
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}


def declared_port(recipe: Recipe) -> int:
    """Return the port of the recipe's first server; 8000 without one."""
    servers = recipe.engine.servers
    return (urlsplit(servers[0]).port if servers else None) or DEFAULT_PORT


def free_port() -> int:
    """Return a port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """A server that Truing has started; it ends with this process."""

    def __init__(self, command: list[str], variables: Mapping[str, str], url: str, log: Path) -> None:
        self.url, self.log = url, log
        _check_has_vllm(command[0])
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env=os.environ | dict(variables) | dict(child_variables()),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a group to stop; Ctrl-C reaches the trainer alone, which stops it
            )

    def wait_until_ready(self, timeout: float) -> None:
        """Return once the server answers.

        Raises:
            EngineError: It ended, or does not answer within ``timeout`` seconds.
        """
        client, deadline = VllmClient(self.url, timeout), time.monotonic() + timeout
        try:
            while not client.is_alive():
                if (code := self._process.poll()) is not None:
                    raise self._error(f"it ended with exit code {code}")
                if time.monotonic() > deadline:
                    raise self._error(f"no answer within engine.timeout = {timeout:g} s")
                time.sleep(0.2)
        finally:
            client.close()

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the server; None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Stop the server and its processes, which a killed server leaves behind with their memory."""
        end_group(self._process, STOP_SECONDS)

    def _error(self, got: str) -> EngineError:
        """Return an error with the end of the log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
        return EngineError(
            "the vLLM server did not start",
            got="\n".join([got, *lines]),
            expected="a server that answers /health",
            remedy=f"{self.log} has its whole output; set engine.python to an interpreter that has"
            " vLLM 0.32 or newer, or engine.arguments, as gpu-memory-utilization (`truing explain vllm`)",
        )


def adapter_rank(recipe: Recipe) -> int:
    """Return the largest rank of an adapted layer; 0 without an adapter."""
    lora = recipe.lora
    if not lora:
        return 0
    return lora.rank if lora.adapter is None and lora.rank else largest_rank(read_config(str(lora.adapter)))


def _lora_rank(rank: int) -> int:
    """Return the smallest rank of vLLM's that holds an adapter."""
    fitting = [each for each in LORA_RANKS if each >= rank]
    if not fitting:
        raise EngineError(
            "vLLM cannot hold an adapter of this rank",
            got=f"lora.rank = {rank}",
            expected=f"≤ {LORA_RANKS[-1]}",
        )
    return fitting[0]


def _check_has_vllm(python: str) -> None:
    """Raise unless an interpreter finds vLLM."""
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
    if subprocess.run([python, "-c", code], check=False).returncode != 0:
        raise EngineError(
            "the interpreter that starts the server has no vLLM",
            got=python,
            expected="an environment with vLLM 0.32 or newer",
            remedy="set engine.python to the Python of such an environment (`truing explain vllm`)",
        )


def _python(python: str | None) -> str:
    """Return the path of the interpreter that has vLLM."""
    if python is None:
        return sys.executable
    found = shutil.which(os.path.expanduser(python))
    if found is None:
        raise EngineError(
            "engine.python names no interpreter", got=python, remedy="the path of a Python that has vLLM"
        )
    return found
