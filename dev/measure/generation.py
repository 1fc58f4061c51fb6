"""Generation alone, with prompts and answers of many lengths: Truing, transformers and vLLM.

python -m dev.measure.generation truing|hf JOB.json
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from dev.measure.cases import MODEL, Case
from dev.measure.compare import run_and_read_json
from truing.engines.base import Request
from truing.engines.local.engine import LocalEngine
from truing.models.load import load, load_tokenizer
from truing.models.resolve import resolve_model
from truing.types.sampling_params import SamplingParams
from truing.utils.memory import keep_freed_memory

MAX_NEW_TOKENS = 128
STOPS = (".", "\n", "<|im_end|>")
"""Answers end at one of these, so their lengths differ."""

VLLM_SIDE = Path(__file__).with_name("vllm_side.py")


def compare(rows: int, pairs: int, vllm: Path | None) -> dict[str, Any]:
    """Return tokens per second of each side, medians over ``pairs`` turns, and ratios to Truing's.

    Args:
        rows: prompts of a batch.
        pairs: turns of each side, each with other random numbers.
        vllm: the Python of an environment with vLLM's CPU build; None skips it.
    """
    commands = {side: [sys.executable, "-m", "dev.measure.generation", side] for side in ("truing", "hf")}
    if vllm is not None:
        commands["vllm"] = [str(vllm), str(VLLM_SIDE)]
    turns = [_run_sides(commands, generation_job(rows, seed)) for seed in range(pairs)]
    rate = {
        name: statistics.median(turn[name]["tokens"] / turn[name]["seconds"] for turn in turns)
        for name in commands
    }
    length = {name: statistics.mean(turn[name]["tokens"] / rows for turn in turns) for name in commands}
    ratios = {f"ratio_{name}": round(rate["truing"] / rate[name], 2) for name in commands if name != "truing"}
    results = {
        name: {"tokens_per_s": round(rate[name], 1), "mean_length": round(length[name], 1)}
        for name in commands
    }
    return {"rows": rows, "pairs": pairs, **ratios, **results}


def _run_sides(commands: Mapping[str, Sequence[str]], job: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the result of each side on the same job."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.json"
        file.write_text(json.dumps(job))
        return {
            name: run_and_read_json(
                f"the {name} side of generation",
                [*command, str(file)],
                "--vllm is a Python that can import vllm" if name == "vllm" else "",
            )
            for name, command in commands.items()
        }


def generation_job(rows: int, seed: int) -> dict[str, Any]:
    """Return the job of all sides: prompts of 38 to some 140 tokens as ids, and the stop ids."""
    tokenizer = load_tokenizer(resolve_model(MODEL))
    render = partial(tokenizer.apply_chat_template, add_generation_prompt=True, return_dict=False)
    conversations: list[Any] = [
        Case("", "", 1, 1, 1, lora=False, sums=i % 8).conversations(i + 1)[i] for i in range(rows)
    ]
    return {
        "model": str(resolve_model(MODEL)),
        "prompts": [render(conversation) for conversation in conversations],
        "stops": [tokenizer(stop).input_ids[0] for stop in STOPS],
        "max_new_tokens": MAX_NEW_TOKENS,
        "seed": seed,
    }


def measure_truing(job: dict[str, Any]) -> dict[str, float]:
    """Measure Truing's engine."""
    keep_freed_memory()
    loaded = load(job["model"], device="cpu")
    sampler = LocalEngine(loaded.model, context_length=loaded.context_length)
    sampling_params = SamplingParams(max_new_tokens=job["max_new_tokens"], stop_ids=tuple(job["stops"]))

    def generate(turn: int) -> int:
        key = job["seed"], turn
        requests = [Request(torch.tensor(ids), (*key, i)) for i, ids in enumerate(job["prompts"])]
        return sum(len(completion.token_ids) for completion in sampler.generate(requests, sampling_params))

    return _time(generate)


def measure_transformers(job: dict[str, Any]) -> dict[str, float]:
    """Measure transformers' generate, with a cache, on rows padded to the longest."""
    model: Any = AutoModelForCausalLM.from_pretrained(
        job["model"], dtype=torch.float32, trust_remote_code=False
    ).eval()
    longest = max(map(len, job["prompts"]))
    ids = torch.tensor([[0] * (longest - len(ids)) + ids for ids in job["prompts"]])
    mask = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in job["prompts"]])
    stops = torch.tensor(job["stops"])

    def generate(turn: int) -> int:
        torch.manual_seed(2 * job["seed"] + turn)
        with torch.inference_mode():
            answers = model.generate(
                ids,
                attention_mask=mask,
                do_sample=True,
                top_k=0,
                max_new_tokens=job["max_new_tokens"],
                eos_token_id=job["stops"],
                pad_token_id=job["stops"][0],
            )[:, longest:]
        is_stop = torch.isin(answers, stops).int()
        return int(torch.where(is_stop.any(1), is_stop.argmax(1) + 1, answers.shape[1]).sum())

    return _time(generate)


def _time(generate: Any) -> dict[str, float]:
    """Return tokens and seconds of the second call; the first warms up."""
    generate(0)
    started = time.perf_counter()
    return {"tokens": generate(1), "seconds": time.perf_counter() - started}


if __name__ == "__main__":
    side, file = sys.argv[1:]
    print(
        json.dumps(
            {"truing": measure_truing, "hf": measure_transformers}[side](json.loads(Path(file).read_text()))
        )
    )
