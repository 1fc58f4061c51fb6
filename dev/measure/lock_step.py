"""Throughput where environments wait: rollouts in lock step, and rollouts that wait for nobody.

    python -m dev.measure.lock_step [--rollouts 192] [--rows 16] [--turns 4] [--new-tokens 32] [--seconds 2]
    python -m dev.measure.lock_step --vllm VLLM/bin/python …

Each rollout takes ``--turns`` turns of ``--new-tokens`` tokens of the built-in SmolLM2-135M; each reply
takes 0 to ``--seconds`` s at random, or none. The engine samples ``--rows`` turns at the same time: with
several times as many rollouts, others sample while some wait. The four ways alternate; medians of tokens per
second, and their ratio to "continuous, no waiting", are printed as one line of JSON.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import torch

from dev.measure.truing_side import StopAppendingBatch, StopAppendingEngine
from truing.chat import make_chat
from truing.config import EpisodeConfig, load_recipe
from truing.engines.base import Engine
from truing.engines.open_engine import open_engine
from truing.models.load import LoadedModel, load
from truing.models.load_policy import load_policy
from truing.rewards import Rewards
from truing.rollouts.collect import collect
from truing.rollouts.episode_context import EpisodeContext
from truing.rollouts.turn_sources import PolicyTurns
from truing.types.message import AssistantMessage, Message
from truing.types.rollout import Task
from truing.types.sampling_params import SamplingParams
from truing.utils.rng import uniforms

RECIPE = Path(__file__).parents[2] / "recipes" / "vllm" / "sort.toml"


_SEEDS = count()
"""A seed per collection: otherwise vLLM finds the turns of an earlier one in its prefix cache."""


class Waiting:
    """Replies after 0 to ``seconds`` s."""

    notes: Sequence[str] = ()
    rewards: Rewards = {}  # noqa: RUF012

    def __init__(self, turns: int, seconds: float) -> None:
        self.turns, self.seconds, self.opened = turns, seconds, 0
        self.seed = next(_SEEDS)

    def tasks(self, split: str) -> Sequence[Task]:
        """Return one task."""
        return [Task("0", "wait", ({"role": "user", "content": "Tell me a story about a lighthouse."},))]

    def open(self, task: Task) -> "WaitingEpisode":
        """Return a new episode, with waiting times of its own."""
        self.opened += 1
        return WaitingEpisode([self.seconds * u for u in uniforms(self.turns, "wait", self.opened).tolist()])


@dataclass
class WaitingEpisode:
    """An episode; ``seconds`` has one waiting time per turn."""

    seconds: list[float]

    def reply(self, message: AssistantMessage) -> Sequence[Message]:
        """Wait, and reply; after the last turn the episode is over."""
        time.sleep(self.seconds.pop())
        return [{"role": "user", "content": "Go on, and tell me more."}] if self.seconds else []

    def outcome(self) -> Mapping[str, Any]:
        """Return an empty outcome."""
        return {}


@dataclass(frozen=True)
class StopAppending:
    """vLLM's engine, whose turns all end at their length, with a stop."""

    engine: Engine
    stop: int
    draws = "unknown"

    @property
    def context_length(self) -> int:
        """The engine's."""
        return self.engine.context_length

    @contextmanager
    def running_batch(self, sampling_params: SamplingParams) -> Iterator[StopAppendingBatch]:
        """Generate one id fewer, and append a stop."""
        shorter = replace(sampling_params, max_new_tokens=sampling_params.max_new_tokens - 1)
        with self.engine.running_batch(shorter) as batch:
            yield StopAppendingBatch(batch, self.stop)


@contextmanager
def opened(args: argparse.Namespace) -> Iterator[tuple[LoadedModel, Any]]:
    """Return the model, and the engine that the command line asks for."""
    if args.vllm is None:
        loaded = load(args.model, device="cpu")
        yield (
            loaded,
            StopAppendingEngine(loaded.model, context_length=loaded.context_length, max_rows=args.rows),
        )
        return
    server = [f"engine.python={args.vllm}", f"engine.arguments.max-num-seqs={args.rows}"]
    recipe = load_recipe(RECIPE, [f"model.name={args.model}", *server])
    loaded, policy = load_policy(recipe)
    with closing(open_engine(recipe, loaded, policy)) as engine:
        engine.publish(policy, 0, "start")
        yield loaded, StopAppending(engine, loaded.stop_ids[0])


def tokens_per_second(
    loaded: LoadedModel, engine: Any, args: argparse.Namespace, seconds: float, *, lock_step: bool
) -> float:
    """Return the sampled tokens per second of one collection."""
    env = Waiting(args.turns, seconds)
    limits = EpisodeConfig(max_turns=args.turns + 1, workers=args.rollouts, lock_step=lock_step)
    params = SamplingParams(
        max_new_tokens=args.new_tokens + 1, min_new_tokens=args.new_tokens, stop_ids=loaded.stop_ids
    )
    chat = make_chat(loaded.tokenizer, loaded.stop_ids)
    started = time.perf_counter()
    groups = collect(
        env.tasks("train"),
        group_size=args.rollouts,
        context=EpisodeContext(chat, env, params, limits, loaded.context_length),
        turn_source=PolicyTurns(engine, params, torch.empty(0, dtype=torch.long)),
        grade=None,
        key=("bench", env.seed),
    )
    elapsed = time.perf_counter() - started
    return sum(len(turn.token_ids) for each in groups[0].rollouts for turn in each.turns) / elapsed


def main() -> None:
    """Print the medians and ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--vllm", help="the Python of an environment with vLLM")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rollouts", type=int, default=192)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    ways = {
        f"{'lock step' if lock_step else 'continuous'}, {'waiting' if seconds else 'no waiting'}": (
            lock_step,
            seconds,
        )
        for lock_step in (False, True)
        for seconds in (0.0, args.seconds)
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    with opened(args) as (loaded, engine):
        few = argparse.Namespace(**vars(args) | {"rollouts": args.rows, "turns": 1})
        tokens_per_second(loaded, engine, few, 0.0, lock_step=True)  # the first calls are slower
        for _ in range(args.repeats):
            for name, (lock_step, seconds) in ways.items():
                found[name].append(tokens_per_second(loaded, engine, args, seconds, lock_step=lock_step))
                print(f"{name}: {found[name][-1]:.1f} tokens/s", file=sys.stderr, flush=True)
                if args.vllm is None:
                    engine.reset_prefix_cache()
    medians = {name: statistics.median(values) for name, values in found.items()}
    best = medians["continuous, no waiting"]
    print(json.dumps({"tokens/s": medians, "ratio": {n: round(v / best, 3) for n, v in medians.items()}}))


if __name__ == "__main__":
    main()
