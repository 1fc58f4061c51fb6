"""Seconds in which an engine samples answers with continuous batching: a simulation of events.

Between two events, an answer that ends or some that join, all running answers get one token a step.
"""

import heapq
import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

StepSeconds = Callable[[float, float], float]
"""From running answers, and tokens with cached keys and values, to the seconds of a step."""


class Generation(NamedTuple):
    """What a simulation found."""

    seconds: float
    tail: float  # seconds in which less than a quarter of the places were in use, and nothing waited


def answer_lengths(count: int, mean: float, longest: int, spread: float, key: str) -> list[int]:
    """Return lengths of answers: lognormal with deviation ``spread`` of the logarithm, cut at ``longest``."""
    numbers, centre = random.Random(key), math.log(mean) - spread**2 / 2
    return [min(longest, max(1, round(numbers.lognormvariate(centre, spread)))) for _ in range(count)]


def simulate(
    lengths: Sequence[int],
    prompt: int,
    group: int,
    places: int,
    cache: float,
    step: StepSeconds,
    prefill: Callable[[float], float],
) -> Generation:
    """Return the seconds of one engine that samples answers in order.

    Answers join as long as a place is free and their whole length fits the cache, so nothing is preempted. A
    group's prompt is read and cached once.

    >>> step = lambda running, cached: 1.0
    >>> simulate([3, 1, 2], prompt=0, group=1, places=2, cache=9, step=step, prefill=lambda prompts: 0.0)
    Generation(seconds=3.0, tail=0.0)

    Args:
        lengths: tokens of each answer; those of a group follow each other.
        prompt: tokens of a prompt.
        group: answers of a prompt.
        places: answers that run at a time.
        cache: tokens whose keys and values fit.
        step: seconds of a step.
        prefill: seconds in which a number of prompts is read.
    """
    running: list[int] = []  # ends of the running answers, in steps: a heap
    ends: dict[int, int] = {}  # reserved tokens that an end frees
    seconds, tail, now, joined, reserved, cached = 0.0, 0.0, 0, 0, 0, 0.0
    while joined < len(lengths) or running:
        before = joined
        while joined < len(lengths) and len(running) < places:
            need = lengths[joined] + prompt / group
            if running and reserved + need > cache:
                break
            heapq.heappush(running, now + lengths[joined])
            ends[now + lengths[joined]] = ends.get(now + lengths[joined], 0) + lengths[joined]
            reserved, cached, joined = reserved + need, cached + prompt / group, joined + 1
        seconds += prefill((joined - before) / group)
        end = running[0]
        steps, count = end - now, len(running)
        spent = steps * step(count, cached + count * steps / 2)
        seconds += spent
        tail += spent if joined == len(lengths) and count < min(places, len(lengths)) / 4 else 0.0
        cached, now = cached + count * steps, end
        while running and running[0] == end:
            heapq.heappop(running)
            reserved, cached = reserved - prompt / group, cached - prompt / group
        freed = ends.pop(end)
        reserved, cached = reserved - freed, cached - freed
    return Generation(seconds, tail)
