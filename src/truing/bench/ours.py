"""Truing's side: steps of ``truing.train`` as a user would run it, recording and all."""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truing.api import train
from truing.bench.cases import MODEL, Case, letters
from truing.rewards import Rewards
from truing.types import Task


class Sums:
    """The case as an environment."""

    notes = ()

    def __init__(self, case: Case, steps: int) -> None:
        self.rewards: Rewards = {"letters": (lambda rollout, task: letters(rollout.text), 1.0)}
        texts = case.texts(case.prompts * steps + 2)
        tasks = [Task(text[-30:], "sums", ({"role": "user", "content": text},)) for text in texts]
        self._tasks = {"train": tasks[:-2], "eval": tasks[-2:]}

    def tasks(self, split: str) -> list[Task]:
        """The prompts of the case; two more to evaluate, as a run must."""
        return self._tasks[split]


def measure(case: Case, steps: int) -> dict[str, float]:
    """Seconds of the last of ``steps`` steps, and of its parts."""
    ended: list[float] = []
    parts: list[Mapping[str, float]] = []

    def watch(kind: str, facts: Mapping[str, Any]) -> None:
        if kind == "step":
            ended.append(time.perf_counter())
            parts.append(facts["record"].seconds)

    with tempfile.TemporaryDirectory() as folder:
        train(recipe(case, steps), env=Sums(case, steps), out=Path(folder) / "run", watch=watch)
    last = parts[-1]
    return {
        "step": ended[-1] - ended[-2],
        "generate": last["prefill"] + last["decode"],
        "train": last["forward"] + last["backward"] + last["optimizer"],
    }


def recipe(case: Case, steps: int) -> dict[str, Any]:
    """The case as a recipe."""
    return {
        "name": f"bench-{case.name}",
        "stages": ["grpo"],
        "model": {"name": MODEL},
        "lora": {"rank": 16, "alpha": 32.0} if case.lora else False,
        "sampling": {"max_new_tokens": case.new_tokens, "min_new_tokens": case.new_tokens},
        "grpo": {
            "steps": steps,
            "learning_rate": 1e-5,
            "prompts_per_step": case.prompts,
            "group_size": case.group_size,
        },
        "eval": {"tasks": 2, "base": False},
    }
