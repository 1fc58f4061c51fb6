"""The cost of many environment replies: in workers, as rollouts do it, against a thread for each call.

    python bench/worlds.py [--attempts 64] [--repeats 5]

Attempts of `recipes/workspace-tiny.toml` are opened, answer each turn of their demonstrations, and return
their outcome. Both ways alternate; the medians and their ratio are printed as one line of JSON.
"""

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from truing.config import load_recipe
from truing.envs import make_env
from truing.rollouts.workers.threads import MAX_WORKERS, run_in_workers

RECIPE = Path(__file__).parents[1] / "recipes" / "workspace-tiny.toml"
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
    return [outcome.value for outcome in run_in_workers(calls, 60.0)]


def seconds(together: Together, env: Any, attempts: int) -> float:
    """Return the seconds of ``attempts`` demonstrations, run in one way."""
    tasks = env.tasks("train")[:attempts]
    started = time.perf_counter()
    episodes = together([partial(env.open, task) for task in tasks])
    for turn in range(max(len(task.demonstration) for task in tasks)):
        active = [pair for pair in zip(episodes, tasks, strict=True) if turn < len(pair[1].demonstration)]
        together([partial(episode.reply, task.demonstration[turn]) for episode, task in active])
    together([episode.outcome for episode in episodes])
    return time.perf_counter() - started


def main() -> None:
    """Measure both ways, in turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attempts", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    recipe = load_recipe(RECIPE)
    assert recipe.env is not None
    keys = dict(recipe.env)
    env = make_env(keys.pop("name"), keys)
    pairs = [
        (seconds(a_thread_each, env, given.attempts), seconds(as_rollouts, env, given.attempts))
        for _ in range(given.repeats)
    ]
    each, ours = (statistics.median(side) for side in zip(*pairs, strict=True))
    measured = {"thread_each_s": round(each, 4), "rollouts_s": round(ours, 4), "ratio": round(each / ours, 1)}
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
