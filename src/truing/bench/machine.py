"""What this machine can do: products of matrices, and reading memory."""

import copy
import time
from collections.abc import Callable

import torch
from torch import nn

from truing.models.linear import use_onednn

SIDE = 2048
BYTES = 256_000_000
"""More than any cache holds."""

REPEATS = 5


def gemm_rate() -> float:
    """Operations per second of a product of two float32 matrices, by the better of torch's two libraries."""
    a, layer = torch.randn(SIDE, SIDE), nn.Linear(SIDE, SIDE, bias=False).requires_grad_(False)
    quick = nn.Sequential(copy.deepcopy(layer))
    use_onednn(quick)
    return 2 * SIDE**3 / min(_best(lambda: layer(a)), _best(lambda: quick(a)))


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
