"""The CPU threads of a session: the recipe's, those of the run it continues, or by the size of the model."""

import torch
from torch import nn

from truing.config import Recipe
from truing.models.forward.score import causal_model
from truing.utils.cores import usable_cores

SMALL = 20e6
"""Parameters below which a model is computed by one thread: a second one only waits."""

TORCH_THREADS = torch.get_num_threads()
"""Torch's own number, before a run sets another: ``OMP_NUM_THREADS``, or one for each physical core."""


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
    """Return 1 for a small model, and for a larger one torch's own number, at most one per usable core.

    Nothing is measured: a busy moment would give another number, and other bits.
    """
    if sum(weight.numel() for weight in policy.parameters()) < SMALL:
        return 1
    return min(TORCH_THREADS, usable_cores())
