"""Sampling with vLLM: throughput beside vLLM alone, share of the proof in a step, and reward curves.

    python -m dev.measure.engines throughput [KEY=VALUE …] [--requests 64] [--new-tokens 64] [--repeats 5]
    python -m dev.measure.engines training [KEY=VALUE …] [--seeds 0 1 2]

Both take ``recipes/vllm/sort.toml`` with changes, such as ``engine.python=VLLM/bin/python``. ``throughput``
sends the same requests to Truing's engine and to vLLM's ``LLM.generate`` in turns; both servers stay loaded.
``training`` trains each seed with vLLM and with the in-process engine.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import torch

import truing
from truing.config import Recipe, load_recipe
from truing.engines.base import Engine, Request, generate
from truing.engines.open_engine import open_engine
from truing.engines.vllm.engine import VllmEngine
from truing.engines.vllm.params import to_vllm
from truing.models.load_policy import load_policy
from truing.record import RunReader
from truing.types.sampling_params import SamplingParams

RECIPE = Path(__file__).parents[2] / "recipes" / "vllm" / "sort.toml"


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["throughput", "training"])
    parser.add_argument("changes", nargs="*")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    if args.what == "training":
        training(args.changes, args.seeds)
    else:
        throughput(load_recipe(RECIPE, args.changes), args.requests, args.new_tokens, args.repeats)


def throughput(recipe: Recipe, count: int, new_tokens: int, repeats: int) -> None:
    """Print tokens per second of Truing's engine and of vLLM alone, and their ratio."""
    loaded, policy = load_policy(recipe)
    params = SamplingParams(max_new_tokens=new_tokens)
    with closing(open_engine(recipe, loaded, policy)) as engine, vllm_alone(recipe, engine) as alone:
        ratios = []
        print(f"{'':>6}{'truing':>12}{'vllm':>12}{'ratio':>8}   tokens/s, {count} requests of {new_tokens}")
        for repeat in range(-1, repeats):  # the first measurement warms up
            requests = [Request(torch.arange(36) * (3 + i) % 49_000 + 17, (repeat, i)) for i in range(count)]
            since = time.perf_counter()
            turns = generate(engine, requests, params)
            ours = sum(len(turn.token_ids) for turn in turns) / (time.perf_counter() - since)
            theirs = alone(requests, params)
            if repeat >= 0:
                ratios.append(ours / theirs)
                print(f"{repeat:>6}{ours:>12.1f}{theirs:>12.1f}{ratios[-1]:>8.3f}", flush=True)
        print(f"median{statistics.median(ratios):>32.3f}")


@contextmanager
def vllm_alone(
    recipe: Recipe, engine: Engine
) -> Iterator[Callable[[Sequence[Request], SamplingParams], float]]:
    """Give a function that returns the tokens per second of ``LLM.generate`` for requests."""
    assert isinstance(engine, VllmEngine)
    publication = engine._publication
    assert recipe.lora
    assert publication is not None
    assert recipe.engine.python is not None
    arguments: dict[str, Any] = {
        "model": str(load_policy(recipe)[0].path),
        "adapter": str(publication.folder),
        "dtype": str(engine.servers[0].facts.dtype).removeprefix("torch."),
        "max_model_len": engine.context_length,
        "enable_lora": True,
        "max_lora_rank": recipe.lora.rank,
        "max_loras": 1,
        "enforce_eager": True,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        "skip_tokenizer_init": True,
        "enable_chunked_prefill": False,
    }
    script = str(Path(__file__).with_name("vllm_alone.py"))
    log = Path(tempfile.mkstemp(prefix="vllm-alone-", suffix=".log")[1])
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [recipe.engine.python, script],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=os.environ | {"VLLM_CPU_KVCACHE_SPACE": "2"},
        )
    assert process.stdin is not None
    print(json.dumps(arguments), file=process.stdin, flush=True)

    def measure(requests: Sequence[Request], params: SamplingParams) -> float:
        bodies = [
            {"token_ids": each.prompt_ids.tolist(), "sampling_params": to_vllm(params, each.rng_key)}
            for each in requests
        ]
        assert process.stdout is not None
        print(json.dumps(bodies), file=process.stdin, flush=True)
        measured = json.loads(process.stdout.readline())
        return measured["tokens"] / measured["seconds"]

    with process:
        yield measure
        process.stdin.close()


def training(changes: Sequence[str], seeds: Sequence[int]) -> None:
    """Print the mean reward by quarter of the run, by engine and seed, and the share of publications."""
    print(f"{'engine':<8}{'seed':>5}   mean reward by quarter of the run   eval    sync/step   s/step")
    last: dict[str, list[float]] = {"local": [], "vllm": []}
    for seed in seeds:
        for kind in last:
            local = ["engine={kind='local'}"] if kind == "local" else []
            recipe = load_recipe(RECIPE, [*changes, *local, f"seed={seed}"])
            with tempfile.TemporaryDirectory() as out:
                result = truing.train(recipe, out=Path(out) / "run")
                steps = [row for row in RunReader(result.run).steps() if row.stage == "grpo"]
            rewards = [row.metrics["reward/mean"] for row in steps]
            size = -(-len(rewards) // 4)
            quarters = [statistics.mean(rewards[i : i + size]) for i in range(0, len(rewards), size)]
            last[kind].append(quarters[-1])
            score = result.estimates()["after_grpo"].mean
            seconds = statistics.median(sum(row.seconds.values()) for row in steps)
            share = statistics.median(row.seconds["sync"] / sum(row.seconds.values()) for row in steps)
            cells = "".join(f"{value:>8.3f}" for value in quarters)
            print(f"{kind:<8}{seed:>5}   {cells}   {score:>8.3f}{share:>11.1%}{seconds:>9.2f}", flush=True)
    for kind, values in last.items():
        spread = statistics.stdev(values) if len(values) > 1 else float("nan")
        print(f"{kind}: last quarter {statistics.mean(values):.3f}, standard deviation {spread:.3f}")


if __name__ == "__main__":
    main()
