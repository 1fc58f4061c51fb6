"""What this machine can do: products of matrices, and reading memory."""

import time
from collections.abc import Callable

import torch

SIDE = 2048
BYTES = 256_000_000
"""More than any cache holds."""

REPEATS = 5


def gemm_rate() -> float:
    """Operations per second of a product of two float32 matrices, at its best."""
    a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    return 2 * SIDE**3 / _best(lambda: a @ b)


def read_rate() -> float:
    """Bytes per second that a sum over memory reads, at its best."""
    numbers = torch.ones(BYTES // 4)
    return BYTES / _best(numbers.sum)


def _best(work: Callable[[], object]) -> float:
    """Seconds of the quickest of some runs; what slows the others is not the machine's limit."""
    seconds: list[float] = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
