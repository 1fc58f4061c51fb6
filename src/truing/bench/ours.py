"""Truing's side: steps of ``truing.train`` as a user would run it, recording and all."""

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truing.api import train
from truing.bench.cases import MODEL, Case, letters
from truing.rewards import Rewards
from truing.types import StepRecord, Task


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


@dataclass(frozen=True)
class Step:
    """The last step of a run, and its seconds from the end of the one before."""

    seconds: float
    record: StepRecord


def measure(case: Case, steps: int) -> dict[str, float]:
    """Seconds of the last of ``steps`` steps, and of its parts."""
    step = last_step(case, steps)
    parts = step.record.seconds
    return {
        "step": step.seconds,
        "generate": parts["prefill"] + parts["decode"],
        "train": parts["forward"] + parts["backward"] + parts["optimizer"],
    }


def last_step(case: Case, steps: int) -> Step:
    """Run the case, in a folder that is gone afterwards."""
    ended: list[float] = []
    records: list[StepRecord] = []

    def watch(kind: str, facts: Mapping[str, Any]) -> None:
        if kind == "step":
            ended.append(time.perf_counter())
            records.append(facts["record"])

    with tempfile.TemporaryDirectory() as folder:
        train(recipe(case, steps), env=Sums(case, steps), out=Path(folder) / "run", watch=watch)
    return Step(ended[-1] - ended[-2], records[-1])


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
