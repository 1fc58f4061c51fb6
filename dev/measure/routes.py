"""Expert routes with vLLM's CPU build: how often the trainer would route otherwise, with and without replay.

    python -m dev.measure.routes --vllm VLLM/bin/python [--steps 3] [--new-tokens 24]

Trains ``tiny-moe`` with random rewards, the engine in float32 and in bfloat16.
"""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import truing
from dev.faults.fault import patched
from truing.record import RunReader
from truing.trainer.preflight import random_reward

METRICS = ("mismatch/routes_differ", "mismatch/max_abs", "mismatch/k3")


def main() -> None:
    """Train with each dtype, along the routes and without them, and print the metrics of each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--vllm", required=True, help="Python of the environment with vLLM")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--new-tokens", type=int, default=24)
    args = parser.parse_args()
    for dtype in ("float32", "bfloat16"):
        for replay in (True, False):
            print(dtype, "along the routes" if replay else "without replay")
            for metrics in trained(recipe(args.vllm, dtype, args.steps, args.new_tokens), replay=replay):
                print("   ", {name: float(f"{metrics[name]:.2g}") for name in METRICS if name in metrics})


def recipe(python: str, dtype: str, steps: int, new_tokens: int) -> dict[str, Any]:
    """Return the recipe's table."""
    return {
        "name": "routes",
        "stages": ["grpo"],
        "model": {"name": "tiny-moe", "device": "cpu"},
        "env": {"name": "arithmetic", "kinds": ["max"], "train": 24, "eval": 8},
        "sampling": {"max_new_tokens": new_tokens},
        "grpo": {"steps": steps, "prompts_per_step": 4, "group_size": 8, "learning_rate": 1e-3},
        "engine": {
            "kind": "vllm",
            "python": python,
            "dtype": dtype,
            "arguments": {"max-model-len": 512},
        },
        "eval": {"tasks": 2, "base": False},
        "doctor": {"stop": False},
    }


def trained(table: dict[str, Any], *, replay: bool) -> list[dict[str, float]]:
    """Return the metrics of each step."""
    with tempfile.TemporaryDirectory() as folder, nullcontext() if replay else without_replay():
        run = Path(folder) / "run"
        truing.train(table, rewards=[random_reward], out=run, on_event=lambda kind, facts: None)
        return [dict(step.metrics) for step in RunReader(run).steps()]


@contextmanager
def without_replay() -> Iterator[None]:
    """Let no route be recorded with a sample, so that the trainer routes by itself."""
    with patched("truing.algos.flatten:join_routes", lambda real: lambda turns: None):
        yield


if __name__ == "__main__":
    main()
