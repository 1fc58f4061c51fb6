"""The CPU threads of a session: as the recipe says, as in the run that it continues, or chosen."""

import time
from statistics import median

import torch
from torch import nn

from truing.config import Recipe
from truing.models.forward.score import causal_model

SMALL = 20e6
"""Parameters below which a model is always computed by one thread: a second one only waits."""

GAIN = 0.8
"""More threads are used if they take at most this share of the seconds of one."""

ROWS, WIDTH, PRODUCTS, REPEATS = 8, 1024, 16, 5
"""The products to measure: those of a decode step are as small, and a busy machine delays each of them."""


def set_threads(recipe: Recipe, policy: nn.Module, recorded: int | None, ranks: int) -> None:
    """Set the number of threads that this process computes with.

    Sums depend on it in their last bits, so a continued run keeps the number of its first start.

    Args:
        recipe: its ``model.threads`` takes precedence.
        policy: the model; on another device than the CPU nothing is changed.
        recorded: the threads in run.json of the run that is continued or evaluated; None for a new run.
        ranks: processes of the run. With several, the launcher has shared the cores among them.
    """
    if recipe.model.threads is not None:
        torch.set_num_threads(recipe.model.threads)
    elif causal_model(policy).device.type == "cpu" and ranks == 1:
        torch.set_num_threads(recorded or chosen_threads(policy))


def chosen_threads(policy: nn.Module) -> int:
    """Return torch's own number of threads, or 1 for a small model or where more are not faster now."""
    own = torch.get_num_threads()
    if own == 1 or sum(weight.numel() for weight in policy.parameters()) < SMALL:
        return 1
    try:
        return own if _seconds(own) < GAIN * _seconds(1) else 1
    finally:
        torch.set_num_threads(own)


def _seconds(threads: int) -> float:
    """Return the seconds of some products on this many threads: the median of several measurements."""
    torch.set_num_threads(threads)
    left, right = torch.ones(ROWS, WIDTH), torch.ones(WIDTH, WIDTH)
    measured = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(PRODUCTS):
            torch.mm(left, right)
        measured.append(time.perf_counter() - start)
    return median(measured)
