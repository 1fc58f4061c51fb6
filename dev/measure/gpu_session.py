"""Measure a borrowed GPU in ten minutes: correctness, memory, speed, a short training. Nothing is downloaded.

    python -m dev.measure.gpu_session FILE.json [--seconds 570]  # again to go on: keeps parts that are done
    python -m dev.measure.gpu_session FILE.json --toy  # toy sizes on a CPU, as without a CUDA device
    python -m dev.measure.gpu_session FILE.json --figures  # print the figures only

Models have random weights in published shapes. Each part runs in a process of its own, those without timing
all at once, and is written to FILE.json when it ends; a part that fails is written with its error and tried
again, after all others, by the next call. TRL's side needs the bench extra. The printed rows are those of
docs/benchmarks.md, "On a GPU".
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from dev import let_processes_import
from dev.measure.gpu import gpu_correctness, gpu_costs
from dev.measure.gpu.gpu_figures import lines
from dev.measure.gpu.gpu_results import PartError, Results, run_parts

LIBRARIES = ("truing", "torch", "transformers", "peft", "trl")
SHOWN = 2000
"""Characters of an error that are kept: its end."""


def parts(toy: bool, device: str) -> dict[str, Callable[[], dict[str, Any]]]:
    """Return all parts by name, in order."""
    return {
        "correctness.gradients": partial(gpu_correctness.gradients, device, toy),
        "correctness.sampler": partial(gpu_correctness.sampler, device, toy),
        "correctness.graphs": partial(gpu_correctness.graphs, device, toy),
        "memory.7b": partial(gpu_costs.memory, "qwen2.5-7b", toy),
        "training": partial(gpu_costs.training, toy, device),
        "speed.1k.truing": partial(gpu_costs.speed_of_truing, "gpu-0.6b", toy),
        "speed.1k.trl": partial(gpu_costs.speed_of_trl, "gpu-0.6b", toy),
        "speed.4k.truing": partial(gpu_costs.speed_of_truing, "gpu-0.6b-4k", toy),
        "speed.4k.trl": partial(gpu_costs.speed_of_trl, "gpu-0.6b-4k", toy),
        "speed.4b": partial(gpu_costs.shares, "gpu-4b", toy),
    }


def is_timed(part: str) -> bool:
    """Return whether a part measures time, and so runs alone; the others run at once, first."""
    return part.startswith("speed.")


def machine(toy: bool) -> dict[str, Any]:
    """Return the device, its driver's CUDA, and the versions of the libraries."""
    cuda = torch.cuda.is_available()
    return {
        "command": " ".join(sys.argv),
        "toy": toy,
        "device": torch.cuda.get_device_name(0) if cuda else platform.processor() or platform.machine(),
        "memory": torch.cuda.get_device_properties(0).total_memory if cuda else None,
        "cuda": torch.version.cuda if cuda else None,
        "threads": torch.get_num_threads(),
        "versions": {name: _version(name) for name in LIBRARIES},
    }


def run_part(toy: bool, name: str, left: float) -> dict[str, Any]:
    """Return the result of a part, run in a process group that ends with it."""
    print(f"{name} …", file=sys.stderr, flush=True)
    command = [sys.executable, __file__, "-", "--part", name, *(["--toy"] if toy else [])]
    let_processes_import()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, errors = process.communicate(timeout=left)
        late = ""
    except subprocess.TimeoutExpired:
        late = f"not done in the {left:.0f} seconds that were left\n"
    finally:
        with suppress(ProcessLookupError):  # the group has ended
            os.killpg(process.pid, signal.SIGKILL)
    if late:
        raise PartError(late + process.communicate()[1][-SHOWN:])
    if process.returncode:
        raise PartError(errors[-SHOWN:] or f"exit code {process.returncode}")
    return json.loads(out.splitlines()[-1])


def main() -> None:
    """Run what is not done, and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=570.0, help="of this call")
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--figures", action="store_true")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    toy = chosen.toy or not torch.cuda.is_available()
    known = parts(toy, "cpu" if toy else "cuda")
    if chosen.part:
        print(json.dumps(known[chosen.part]()))
        return
    results = Results(chosen.file)
    if not chosen.figures:
        results.begin_session(machine(toy))
        run_parts(results, list(known), is_timed, partial(run_part, toy), time.monotonic, chosen.seconds)
    print("\n".join(lines(results)))


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
