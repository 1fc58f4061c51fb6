"""Trains small recipes, as a rank of a launcher or alone: ``python train_matrix.py FOLDER NAMES``."""

import os
import sys
import zlib
from pathlib import Path

import truing
from truing.faults.fake_vllm.threads import fake_vllm

STEPS = {"steps": 2, "learning_rate": 1e-3}
POLICY = {**STEPS, "prompts_per_step": 3, "group_size": 3}
STAGES = {
    "sft": {"sft": {**STEPS, "batch_size": 5}},
    "rft": {"rft": {**STEPS, "prompts_per_step": 3, "group_size": 3}},
    "reinforce": {"reinforce": POLICY},
    "rloo": {"rloo": POLICY},
    "grpo": {"grpo": {**POLICY, "inner_epochs": 2, "minibatches": 2}, "kl": {"coef": 0.05}},
    "ppo": {"ppo": {**POLICY, "critic": "head"}},
    "ppo-separate": {"ppo": {**POLICY, "critic": "separate"}},
}


def recipe(name: str) -> dict:
    """Return a recipe by its name: algorithm, weights, and "vllm", "vllm-ahead" or "replicated"."""
    algorithm, weights, *variant = name.split("+")
    options, ranks = STAGES[algorithm], int(os.environ.get("WORLD_SIZE", "1"))
    if variant == ["vllm"]:
        options = {**options, "engine": {"kind": "vllm"}}
    if variant == ["vllm-ahead"]:
        ahead = {"kind": "vllm", "ahead": 1}
        options = {**options, "engine": ahead, "correction": {"method": "truncate"}}
    replicate = min(2, ranks) if variant == ["replicated"] else 1
    return {
        "name": "ranks",
        "stages": [algorithm.split("-")[0]],
        "model": {"name": "tiny", "threads": 1},
        "env": {"name": "arithmetic", "kinds": ["first-3"], "train": 60, "eval": 4, "system": ""},
        "lora": {"rank": 4, "alpha": 8} if weights == "lora" else False,
        "sampling": {"max_new_tokens": 6},
        "eval": {"tasks": 4},
        "optimizer": {"micro_batch_tokens": 120},
        "trainer": {"ranks": ranks, "replicate": replicate},
        **options,
    }


def ignore(kind: str, facts: object) -> None:
    """Take an event."""


def varied(rollout, task) -> float:
    """Return a reward that differs between answers."""
    return zlib.crc32(rollout.text.encode()) % 7 / 7


if __name__ == "__main__":
    with fake_vllm():
        for each in sys.argv[2:]:
            truing.train(recipe(each), rewards=[varied], out=Path(sys.argv[1]) / each, on_event=ignore)
