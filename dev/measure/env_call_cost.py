"""The cost of environment replies: in threads as rollouts use them, in a thread for each call, in processes.

    python -m dev.measure.env_call_cost [--rollouts 64] [--repeats 5] [--processes 4]

Rollouts of `recipes/workspace-tiny.toml` are opened, answer each turn of their demonstrations, and return
their outcome. The ways alternate; the medians, and what a process costs (``episode.processes``), are printed
as one line of JSON.
"""

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from truing.config import EpisodeConfig, load_recipe
from truing.envs import make_env
from truing.rollouts.workers import EnvCall, EnvWorkers, open_workers, run_calls
from truing.rollouts.workers.calls import run_all
from truing.rollouts.workers.thread_workers import MAX_WORKERS, WorkerPool

RECIPE = Path(__file__).parents[2] / "recipes" / "workspace-tiny.toml"
Together = Callable[[Sequence[Callable[[], Any]]], list[Any]]


def a_thread_each(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run calls in a new thread each, ``MAX_WORKERS`` at a time."""
    values: list[Any] = [None] * len(calls)

    def run(i: int) -> None:
        values[i] = calls[i]()

    for first in range(0, len(calls), MAX_WORKERS):
        indices = range(first, min(first + MAX_WORKERS, len(calls)))
        threads = [threading.Thread(target=run, args=(i,)) for i in indices]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return values


def as_rollouts(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run calls as rollouts do."""
    return [outcome.value for outcome in run_all(WorkerPool(60.0), calls)]


def seconds(together: Together, env: Any, rollouts: int) -> float:
    """Return the seconds of ``rollouts`` demonstrations, run in one way."""
    tasks = env.tasks("train")[:rollouts]
    started = time.perf_counter()
    episodes = together([partial(env.open, task) for task in tasks])
    for turn in range(max(len(task.demonstration) for task in tasks)):
        active = [pair for pair in zip(episodes, tasks, strict=True) if turn < len(pair[1].demonstration)]
        together([partial(episode.reply, task.demonstration[turn]) for episode, task in active])
    together([episode.outcome for episode in episodes])
    return time.perf_counter() - started


def seconds_in_workers(workers: EnvWorkers, tasks: Sequence[Any]) -> float:
    """Return the seconds of the demonstrations of tasks, run by workers."""
    started = time.perf_counter()
    ids = [workers.new_episode() for _ in tasks]
    run_calls(workers, [EnvCall("open", i, task) for i, task in zip(ids, tasks, strict=True)])
    for turn in range(max(len(task.demonstration) for task in tasks)):
        active = [
            (i, t.demonstration[turn]) for i, t in zip(ids, tasks, strict=True) if turn < len(t.demonstration)
        ]
        run_calls(workers, [EnvCall("reply", i, message) for i, message in active])
    run_calls(workers, [EnvCall("outcome", i) for i in ids])
    workers.close_episodes(ids)
    return time.perf_counter() - started


def process_costs(env: Any, tasks: Sequence[Any], processes: int, repeats: int) -> dict[str, float]:
    """Return the seconds until the first process answers, those of another, and its own memory."""
    started = time.perf_counter()
    with closing(open_workers(env, EpisodeConfig(processes=True, workers=processes))) as workers:
        first = time.perf_counter() - started
        started = time.perf_counter()
        seconds_in_workers(workers, tasks[:processes])
        others = (time.perf_counter() - started) / max(processes - 1, 1)
        server = next(each for each in psutil.Process().children() if "forkserver" in str(each.cmdline()))
        own = [each.memory_full_info().uss / 1e6 for each in server.children()]
        runs = [seconds_in_workers(workers, tasks) for _ in range(repeats)]
        return {
            "first_process_s": round(first, 2),
            "another_process_s": round(others, 3),
            "own_memory_mb": round(statistics.median(own), 1),
            "shared_memory_mb": round(server.memory_info().rss / 1e6),
            "processes_s": round(statistics.median(runs), 4),
        }


def main() -> None:
    """Measure both ways, in turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rollouts", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--processes", type=int, default=4)
    given = parser.parse_args()
    recipe = load_recipe(RECIPE)
    assert recipe.env is not None
    keys = dict(recipe.env)
    keys |= {"train": given.rollouts, "eval": 8}  # its own memory and start are not those of a process
    env = make_env(keys.pop("name"), keys)
    pairs = [
        (seconds(a_thread_each, env, given.rollouts), seconds(as_rollouts, env, given.rollouts))
        for _ in range(given.repeats)
    ]
    processes = process_costs(env, env.tasks("train")[: given.rollouts], given.processes, given.repeats)
    each, ours = (statistics.median(side) for side in zip(*pairs, strict=True))
    measured = {"thread_each_s": round(each, 4), "rollouts_s": round(ours, 4), "ratio": round(each / ours, 1)}
    print(json.dumps(measured | processes))


if __name__ == "__main__":
    main()
