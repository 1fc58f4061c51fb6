"""Truing's side: steps of ``truing.train`` as a user would run it, recording and all."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from truing.api import train
from truing.bench.cases import REPLY, Case, vowel_share
from truing.bench.random_models import model_folder
from truing.engines.base import Completion, Request
from truing.engines.local.engine import LocalEngine
from truing.learner import session
from truing.rewards import Rewards
from truing.types.batch import StepRecord
from truing.types.message import AssistantMessage, Message
from truing.types.rollout import Task
from truing.types.sampling_params import SamplingParams
from truing.types.status import FinishReason
from truing.types.token import Origin


class Sums:
    """The case as an environment."""

    notes = ()

    def __init__(self, case: Case, steps: int) -> None:
        self.rewards: Rewards = {"letters": (lambda rollout, task: vowel_share(rollout.text), 1.0)}
        conversations = case.conversations(case.prompts * steps + 2)
        tasks = [Task(f"sums-{i}", "sums", tuple(said)) for i, said in enumerate(conversations)]
        self._tasks = {"train": tasks[:-2], "eval": tasks[-2:]}

    def tasks(self, split: str) -> list[Task]:
        """The prompts of the case; two more to evaluate, as a run must."""
        return self._tasks[split]


class FixedReplies:
    """Answers the same so many times, whatever is said."""

    def __init__(self, replies: int) -> None:
        self.replies_left = replies

    def reply(self, said: AssistantMessage) -> Sequence[Message]:
        """The answer, while there is one left."""
        self.replies_left -= 1
        return [{"role": "user", "content": REPLY}] if self.replies_left >= 0 else []

    def outcome(self) -> dict[str, Any]:
        """Nothing to judge by."""
        return {}


class MultiTurnSums(Sums):
    """A case of several turns as an environment."""

    def __init__(self, case: Case, steps: int) -> None:
        super().__init__(case, steps)
        self.replies = case.replies

    def open(self, task: Task) -> FixedReplies:
        """A fresh world."""
        return FixedReplies(self.replies)


class StopAppendingEngine(LocalEngine):
    """Ends each turn at its length with a stop that nobody chose: else it would end the attempt as cut."""

    def generate(self, requests: Sequence[Request], sampling_params: SamplingParams) -> list[Completion]:
        """As drawn, and closed, in as many ids as are allowed; the proof of a sampler knows no stops."""
        if not sampling_params.stop_ids:
            return super().generate(requests, sampling_params)
        shorter = replace(sampling_params, max_new_tokens=sampling_params.max_new_tokens - 1)
        return [_with_stop(each, sampling_params.stop_ids[0]) for each in super().generate(requests, shorter)]


def _with_stop(drawn: Completion, stop: int) -> Completion:
    return replace(
        drawn,
        token_ids=torch.cat([drawn.token_ids, torch.tensor([stop])]),
        origin=torch.cat([drawn.origin, torch.tensor([Origin.FORCED], dtype=torch.uint8)]),
        logprob=torch.cat([drawn.logprob, torch.zeros(1)]),
        finish_reason=FinishReason.STOP,
    )


@dataclass(frozen=True)
class TimedStep:
    """One step of a run, and its seconds since the one before, or since the start."""

    seconds: float
    record: StepRecord


def measure(case: Case, steps: int) -> dict[str, float]:
    """Seconds of the last of ``steps`` steps, and of its parts."""
    step = run_case(case, steps)[-1]
    generate = step.record.seconds["prefill"] + step.record.seconds["decode"]
    return {"step": step.seconds, "generate": generate, "train": step.seconds - generate}


def run_case(case: Case, steps: int, between: Callable[[], None] = lambda: None) -> list[TimedStep]:
    """The steps of a run, whose folder is gone afterwards; none holds the time of what is ``between``."""
    taken: list[TimedStep] = []
    since = time.perf_counter()

    def watch(kind: str, facts: Mapping[str, Any]) -> None:
        nonlocal since
        if kind == "step":
            taken.append(TimedStep(time.perf_counter() - since, facts["record"]))
            between()
            since = time.perf_counter()

    env = MultiTurnSums(case, steps) if case.replies else Sums(case, steps)
    plain, session.LocalEngine = session.LocalEngine, StopAppendingEngine if case.replies else LocalEngine
    try:
        with tempfile.TemporaryDirectory() as folder:
            train(case_recipe(case, steps), env=env, out=Path(folder) / "run", on_event=watch)
    finally:
        session.LocalEngine = plain
    return taken


def case_recipe(case: Case, steps: int) -> dict[str, Any]:
    """The case as a recipe."""
    return {
        "name": f"bench-{case.name}",
        "stages": ["grpo"],
        "model": {
            "name": str(model_folder(case.model)),
            "device": "cuda" if case.gpu else "cpu",
            "cuda_graphs": case.gpu,
        },
        "lora": {"rank": 16, "alpha": 32.0} if case.lora else False,
        "episode": {"max_turns": case.turns},
        "sampling": {
            "max_new_tokens": case.new_tokens + bool(case.replies),  # one more for the stop of a turn
            "min_new_tokens": case.new_tokens,
        },
        "grpo": {
            "steps": steps,
            "learning_rate": 1e-5,
            "prompts_per_step": case.prompts,
            "group_size": case.group_size,
        },
        "eval": {"tasks": 2, "base": False},
    }
