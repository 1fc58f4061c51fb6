"""The machine's limits: matrix products, and reading memory."""

import copy
import time
from collections.abc import Callable

import torch
from torch import nn

from truing.models.forward.onednn_linear import use_onednn

REPEATS = 5

CPU, GPU = ("cpu", torch.float32, 2048, 2**26), ("cuda", torch.bfloat16, 8192, 2**30)
"""Device, dtype, width of the square matrices, and numbers that are read."""


def gemm_rates(gpu: bool) -> dict[str, float]:
    """Return operations per second of a matrix product, by each library that torch uses."""
    device, dtype, size, _ = GPU if gpu else CPU
    a = torch.randn(size, size, device=device, dtype=dtype)
    linear = nn.Linear(size, size, bias=False, device=device, dtype=dtype).requires_grad_(False)
    products = {"torch": lambda: linear(a)}
    if not gpu:
        onednn = nn.Sequential(copy.deepcopy(linear))
        use_onednn(onednn)
        products["oneDNN"] = lambda: onednn(a)
    return {name: 2 * size**3 / _best(product, gpu) for name, product in products.items()}


def read_rate(gpu: bool) -> float:
    """Return bytes per second of a sum over more memory than any cache holds."""
    device, _, _, count = GPU if gpu else CPU
    numbers = torch.ones(count, device=device)
    return numbers.nbytes / _best(numbers.sum, gpu)


def _best(work: Callable[[], object], gpu: bool) -> float:
    """Return the seconds of the fastest of several runs: the others are slower than the machine's limit."""
    synchronize = torch.cuda.synchronize if gpu else lambda: None
    seconds: list[float] = []
    for _ in range(REPEATS):
        synchronize()
        started = time.perf_counter()
        work()
        synchronize()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
