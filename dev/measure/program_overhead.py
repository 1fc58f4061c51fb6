"""The cost of the endpoint: a collection in process, and the same calls made by programs through HTTP.

    python -m dev.measure.program_overhead [--model tiny] [--rollouts 32] [--turns 4] [--new-tokens 64]
    python -m dev.measure.program_overhead --vllm VLLM/bin/python --model smollm2-135m …

Each rollout takes ``--turns`` turns of ``--new-tokens`` tokens. In process an environment says "go on"; a
program, a function in the trainer's process, says the same through a plain HTTP connection, or a client of
OpenAI's that it makes. The three ways alternate, with equal numbers of tokens; medians of seconds per
collection, and their ratio to those in process, are printed as one line of JSON. ``cpu`` has the same of the
trainer's process alone, which other work on the machine does not change.
"""

import argparse
import http.client
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import torch
from openai import OpenAI

import truing
from dev.measure.lock_step import opened
from truing.chat import make_chat
from truing.config import EpisodeConfig
from truing.envs.base import Env
from truing.models.load import LoadedModel
from truing.rewards import Rewards
from truing.rollouts.collect import collect
from truing.rollouts.episode_context import EpisodeContext
from truing.rollouts.turn_sources import PolicyTurns
from truing.types.message import AssistantMessage, Message
from truing.types.rollout import Task
from truing.types.sampling_params import SamplingParams

GO_ON: Message = {"role": "user", "content": "Go on, and tell me more."}
TASK = Task("0", "story", ({"role": "user", "content": "Tell me a story about a lighthouse."},))


@dataclass
class InProcess:
    """An environment that says "go on"."""

    turns: int
    rewards: Rewards
    notes: Sequence[str] = ()

    def tasks(self, split: str) -> Sequence[Task]:
        """Return one task."""
        return [TASK]

    def open(self, task: Task) -> "Told":
        """Return a new episode."""
        return Told(self.turns)


@dataclass
class Told:
    """An episode; ``left`` turns are to come."""

    left: int

    def reply(self, message: AssistantMessage) -> Sequence[Message]:
        """Ask for more; after the last turn the episode is over."""
        self.left -= 1
        return [GO_ON] if self.left else []

    def outcome(self) -> Mapping[str, Any]:
        """Return an empty outcome."""
        return {}


def through_http(turns: int) -> Any:
    """Return a program that makes its calls through one connection, without a client library."""

    def run(task: Task, base_url: str, key: str) -> None:
        url = urlsplit(base_url)
        assert url.hostname is not None
        connection = http.client.HTTPConnection(url.hostname, url.port)
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        messages = [*task.messages]
        for _ in range(turns):
            body = json.dumps({"model": "policy", "messages": messages})
            connection.request("POST", f"{url.path}/chat/completions", body, headers)
            messages += [json.loads(connection.getresponse().read())["choices"][0]["message"], GO_ON]
        connection.close()

    return run


def through_openai(turns: int) -> Any:
    """Return a program that makes its calls through a client of its own."""

    def run(task: Task, base_url: str, key: str) -> None:
        messages: list[Any] = [*task.messages]
        with OpenAI(base_url=base_url, api_key=key) as client:
            for _ in range(turns):
                completion = client.chat.completions.create(model="policy", messages=messages)
                messages += [completion.choices[0].message, GO_ON]

    return run


def sampled(
    loaded: LoadedModel, engine: Any, env: Env, args: argparse.Namespace, key: int
) -> tuple[float, float]:
    """Return the seconds of a collection, and those of this process's CPU."""
    params = SamplingParams(
        max_new_tokens=args.new_tokens + 1, min_new_tokens=args.new_tokens, stop_ids=loaded.stop_ids
    )
    limits = EpisodeConfig(max_turns=args.turns + 1, workers=args.rollouts)
    chat = make_chat(loaded.tokenizer, loaded.stop_ids)
    started, cpu = time.perf_counter(), time.process_time()
    (group,) = collect(
        [TASK],
        group_size=args.rollouts,
        context=EpisodeContext(chat, env, params, limits, loaded.context_length),
        turn_source=PolicyTurns(engine, params, torch.empty(0, dtype=torch.long)),
        grade=None,
        key=("bench", key),
    )
    found = time.perf_counter() - started, time.process_time() - cpu
    if args.vllm is None:
        engine.reset_prefix_cache()
    lengths = [len(turn.token_ids) for each in group.rollouts for turn in each.turns]
    assert lengths == [args.new_tokens + 1] * args.rollouts * args.turns
    return found


def main() -> None:
    """Print the medians and ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--vllm", help="the Python of an environment with vLLM")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--rollouts", type=int, default=32)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    args.rows = args.rollouts
    options: dict[str, Any] = {"tasks": [TASK], "rewards": {}, "at_once": args.rollouts}
    ways: dict[str, Any] = {
        "in process": InProcess(args.turns, {}),
        "http": truing.Program(through_http(args.turns), **options),
        "openai": truing.Program(through_openai(args.turns), **options),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    with opened(args) as (loaded, engine):
        for repeat in range(-1, args.repeats):  # the first measurement warms up
            for i, (name, env) in enumerate(ways.items()):
                # vLLM would find the turns of another way in its prefix cache
                key = repeat if args.vllm is None else repeat * len(ways) + i
                seconds = sampled(loaded, engine, env, args, key)
                if repeat >= 0:
                    found[name].append(seconds)
                    print(f"{name}: {seconds[0]:.3f} s, cpu {seconds[1]:.3f} s", file=sys.stderr, flush=True)
    print(json.dumps({kind: ratios(found, column) for column, kind in enumerate(("wall", "cpu"))}))


def ratios(found: Mapping[str, Sequence[tuple[float, float]]], column: int) -> dict[str, dict[str, float]]:
    """Return the medians of a column, and their ratios to those in process."""
    medians = {name: statistics.median(each[column] for each in rows) for name, rows in found.items()}
    return {
        "seconds": {name: round(value, 3) for name, value in medians.items()},
        "ratio": {name: round(value / medians["in process"], 3) for name, value in medians.items()},
    }


if __name__ == "__main__":
    main()
