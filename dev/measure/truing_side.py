"""Truing's side: steps of ``truing.train`` as a user runs it, with recording."""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from dev.measure.cases import REPLY, Case, even_share
from dev.measure.compare import BenchError
from dev.measure.random_models import model_folder
from truing.api import train
from truing.engines import open_engine
from truing.engines.base import Completion, Request, RunningBatch
from truing.engines.local.engine import LocalEngine
from truing.measurements.audit_schedule import GROUPS
from truing.rewards import Rewards
from truing.types.message import AssistantMessage, Message
from truing.types.rollout import Rollout, Task
from truing.types.sampling_params import SamplingParams
from truing.types.status import FinishReason
from truing.types.step_table import StepTable
from truing.types.token import Origin

FOUND = {"PROVEN", "EVIDENCE", "SUSPECT"}
"""Verdicts that end a measurement."""

SMALL = 0.05
"""Share of a step's cost, in forwards of a token."""

GPU_TOKENS = 16_384
"""Tokens of a micro-batch on a GPU: a prompt of 4,000 tokens with 16 answers of 512 stays in one tree."""


class Sums:
    """The case as an environment."""

    notes = ()

    def __init__(self, case: Case, steps: int) -> None:
        self.rewards: Rewards = {"even": (lambda rollout, task: even_share(_sampled(rollout)), 1.0)}
        conversations = case.conversations(case.prompts * steps + 2)
        tasks = [Task(f"sums-{i}", "sums", tuple(messages)) for i, messages in enumerate(conversations)]
        self._tasks = {"train": tasks[:-2], "eval": tasks[-2:]}

    def tasks(self, split: str) -> list[Task]:
        """Return the prompts of the case; for the evaluation, two more."""
        return self._tasks[split]


class FixedReplies:
    """An episode with a fixed number of equal replies."""

    def __init__(self, replies: int) -> None:
        self.replies_left = replies

    def reply(self, message: AssistantMessage) -> Sequence[Message]:
        """Return the reply, while one is left."""
        self.replies_left -= 1
        return [{"role": "user", "content": REPLY}] if self.replies_left >= 0 else []

    def outcome(self) -> dict[str, Any]:
        """Return an empty outcome."""
        return {}


class MultiTurnSums(Sums):
    """A case of several turns as an environment."""

    def __init__(self, case: Case, steps: int) -> None:
        super().__init__(case, steps)
        self.replies = case.replies

    def open(self, task: Task) -> FixedReplies:
        """Return a new episode."""
        return FixedReplies(self.replies)


class StopAppendingEngine(LocalEngine):
    """Ends each turn at its length with a forced stop; without one, the rollout would count as truncated."""

    @contextmanager
    def running_batch(self, sampling_params: SamplingParams) -> Iterator[RunningBatch]:
        """Generate one id fewer, and append a stop; the engine check has no stop ids, and gets none."""
        stops = sampling_params.stop_ids
        shorter = replace(sampling_params, max_new_tokens=sampling_params.max_new_tokens - bool(stops))
        with super().running_batch(shorter) as batch:
            yield StopAppendingBatch(batch, stops[0]) if stops else batch


@dataclass(frozen=True)
class StopAppendingBatch:
    """A batch that appends a stop to each turn."""

    batch: RunningBatch
    stop: int

    @property
    def unfinished(self) -> int:
        """Requests that were added and are not finished."""
        return self.batch.unfinished

    def add(self, requests: Sequence[Request]) -> None:
        """Add requests."""
        self.batch.add(requests)

    def step(self) -> list[tuple[Request, Completion]]:
        """Return the turns that finished, with their stop."""
        return [(request, _with_stop(turn, self.stop)) for request, turn in self.batch.step()]

    def release(self, episode: tuple[object, ...]) -> None:
        """Free what is cached for an episode that has ended."""
        self.batch.release(episode)


def _sampled(rollout: Rollout) -> list[int]:
    """Return the ids of all turns."""
    return torch.cat([turn.token_ids for turn in rollout.turns]).tolist()


def _with_stop(completion: Completion, stop: int) -> Completion:
    return replace(
        completion,
        token_ids=torch.cat([completion.token_ids, torch.tensor([stop])]),
        origin=torch.cat([completion.origin, torch.tensor([Origin.FORCED], dtype=torch.uint8)]),
        logprob=torch.cat([completion.logprob, torch.zeros(1)]),
        finish_reason=FinishReason.STOP,
    )


@dataclass(frozen=True)
class TimedStep:
    """One step of a run, and its seconds since the previous one, or since the start."""

    seconds: float
    record: StepTable

    @property
    def is_audited(self) -> bool:
        """Whether the step has audits that cost more than ``SMALL`` of it: digests of weights come often."""
        costs = dict(self.record.facts["audit_cost"])
        step = costs.pop("step")
        return sum(costs.values()) > SMALL * step

    def __str__(self) -> str:
        phases = sorted(self.record.seconds.items(), key=lambda phase: -phase[1])
        longest = ", ".join(f"{name} {seconds:.2f}" for name, seconds in phases[:5])
        return f"{self.seconds:.2f} s ({longest})"


def measure(case: Case, steps: int) -> dict[str, float]:
    """Return the median seconds of ``steps`` steps, and of their parts, after those that begin the audits.

    One that is audited later is left out.
    """
    plain = [step for step in run_case(case, len(GROUPS) + steps)[len(GROUPS) :] if not step.is_audited]
    if not plain:
        raise BenchError("every step has an audit", got=f"{steps} steps", remedy="measure more steps")
    seconds = median(step.seconds for step in plain)
    generate = median(step.record.seconds["prefill"] + step.record.seconds["decode"] for step in plain)
    return {"step": seconds, "generate": generate, "train": seconds - generate}


def run_case(case: Case, steps: int, between: Callable[[], None] = lambda: None) -> list[TimedStep]:
    """Return the steps of a run in a temporary folder; their seconds exclude the calls of ``between``.

    Each step is printed to stderr as it ends, since one may take minutes.

    Raises:
        BenchError: The doctor found something; it audits more then, and the run may be wrong.
    """
    steps_done: list[TimedStep] = []
    findings: list[str] = []
    start = time.perf_counter()

    def watch(kind: str, facts: Mapping[str, Any]) -> None:
        nonlocal start
        if kind == "step":
            steps_done.append(TimedStep(time.perf_counter() - start, facts["record"]))
            print(f"step {len(steps_done)} of {steps}: {steps_done[-1]}", file=sys.stderr, flush=True)
            between()
            start = time.perf_counter()
        elif kind == "finding" and facts.get("verdict") in FOUND:
            findings.append(facts["text"])

    env = MultiTurnSums(case, steps) if case.replies else Sums(case, steps)
    original = open_engine.LocalEngine
    open_engine.LocalEngine = StopAppendingEngine if case.replies else LocalEngine
    try:
        with tempfile.TemporaryDirectory() as folder:
            train(case_recipe(case, steps), env=env, out=Path(folder) / "run", on_event=watch)
    finally:
        open_engine.LocalEngine = original
    if findings:
        raise BenchError("the doctor found a fault in the timed run", got=findings[0], expected="no finding")
    return steps_done


def case_recipe(case: Case, steps: int) -> dict[str, Any]:
    """Return the case as a recipe."""
    return {
        "name": f"bench-{case.name}",
        "stages": ["grpo"],
        "model": {
            "name": str(model_folder(case.model)),
            "device": "cuda" if case.gpu else "cpu",
            "cuda_graphs": case.gpu,
            "dtype": "bfloat16" if case.gpu else "float32",
        },
        "optimizer": {"micro_batch_tokens": GPU_TOKENS} if case.gpu else {},
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
