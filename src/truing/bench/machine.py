"""What this machine can do: products of matrices, and reading memory."""

import copy
import time
from collections.abc import Callable

import torch
from torch import nn

from truing.models.forward.onednn_linear import use_onednn

REPEATS = 5


def gemm_rates(gpu: bool) -> dict[str, float]:
    """Operations per second of a product of two matrices, by each library that torch gives them to.

    float32 on the CPU, bfloat16 on CUDA.
    """
    side, device = (8192, "cuda") if gpu else (2048, "cpu")
    a = torch.randn(side, side, device=device, dtype=torch.bfloat16 if gpu else torch.float32)
    plain = nn.Linear(side, side, bias=False, device=device, dtype=a.dtype).requires_grad_(False)
    found = {"torch": lambda: plain(a)}
    if not gpu:
        quick = nn.Sequential(copy.deepcopy(plain))
        use_onednn(quick)
        found["oneDNN"] = lambda: quick(a)
    return {name: 2 * side**3 / _best(product, gpu) for name, product in found.items()}


def read_rate(gpu: bool) -> float:
    """Bytes per second that a sum over memory reads, more of it than any cache holds."""
    numbers = torch.ones(2**30 if gpu else 2**26, device="cuda" if gpu else "cpu")
    return numbers.nbytes / _best(numbers.sum, gpu)


def _best(work: Callable[[], object], gpu: bool) -> float:
    """Seconds of the quickest of some runs; what slows the others is not the machine's limit."""
    settle = torch.cuda.synchronize if gpu else lambda: None
    seconds: list[float] = []
    for _ in range(REPEATS):
        settle()
        started = time.perf_counter()
        work()
        settle()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
