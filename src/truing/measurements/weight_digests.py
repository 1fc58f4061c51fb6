"""Digests of the weights around a step: what it changed, and whether anything else did."""

import math
from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from truing.distributed.sharded_tensors import whole_tables
from truing.measurements.measurement import MeasuredStep, Measurement
from truing.models.digest import joint_sum, quick_sums
from truing.types.facts import Facts
from truing.types.weight_facts import Weights

MAX_WEIGHTS = 8_000_000
"""Weights per digest, some 30 ms: all of an adapter; another slice of a full model in each step."""

MIN_GRADIENT = 1e-6
"""A gradient against which AdamW's ε is negligible."""

MIN_STEP_SHARE = 0.1
"""Least change of some entry by AdamW, as a share of the learning rate."""


class WeightDigests(Measurement):
    """Digests of the weights before and after a step, and the weights that should have changed and did not.

    The digest of the next step's slice shows changes between steps.
    """

    facts = ("weights",)
    cost = "two sums over at most 8 million weights"

    def __init__(self, step: MeasuredStep) -> None:
        super().__init__(step)
        self._due_to_move: set[str] = set()
        self._before = quick_sums(rotating_slice(step.learner.parameters, step.update_index))

    def before_optimizer(self) -> None:
        """Note which weights must change."""
        learner = self.step.learner
        rate = learner.optimizer.param_groups[0]["lr"]
        self._due_to_move.update(weights_due_to_move(learner.parameters, self.step.update_index, rate))

    def after_step(self) -> Facts:
        """Return the digests."""
        parameters, index = self.step.learner.parameters, self.step.update_index
        return {"weights": weight_facts(parameters, index, self._before, self._due_to_move)}


def rotating_slice(
    parameters: Mapping[str, Tensor], update_index: int, max_entries: int = MAX_WEIGHTS
) -> dict[str, Tensor]:
    """Return all weights, or, if there are more than ``max_entries``, this update's slice of them.

    Slices advance through all weights in the order of their names and start over after the last.
    """
    total = sum(weight.numel() for weight in parameters.values())
    if total <= max_entries:
        return whole_tables({name: weight.detach() for name, weight in parameters.items()})
    start, position = update_index % math.ceil(total / max_entries) * max_entries, 0
    bounds = dict[str, slice]()
    for name in sorted(parameters):
        length = parameters[name].numel()
        low, high = max(start - position, 0), min(start + max_entries - position, length)
        if low < high:
            bounds[name] = slice(low, high)
        position += length
    of_slice = whole_tables({name: parameters[name].detach() for name in bounds})
    return {name: of_slice[name].reshape(-1)[bounds[name]] for name in bounds}


def weights_due_to_move(
    parameters: Mapping[str, Tensor], update_index: int, learning_rate: float
) -> list[str]:
    """Return the float32 weights that AdamW must change: their gradient is far above ε.

    A tenth of the learning rate must exceed the rounding of the weight. At the end of a schedule or the start
    of a warm-up it often does not, and rounding absorbs the step.
    """
    gradients = {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad
        for name, weight in parameters.items()
    }
    weights, names = rotating_slice(parameters, update_index), list[str]()
    for name, gradient in rotating_slice(gradients, update_index).items():
        if gradient.dtype is torch.float32:
            rounding = torch.finfo(torch.float32).eps * weights[name].detach().abs()
            if bool(((gradient.abs() > MIN_GRADIENT) & (MIN_STEP_SHARE * learning_rate > rounding)).any()):
                names.append(name)
    return names


def weight_facts(
    parameters: Mapping[str, Tensor],
    update_index: int,
    before: Mapping[str, str],
    due_to_move: Collection[str],
) -> Weights:
    """Return the fact ``weights``: digests before and after an update, and unchanged weights."""
    after = quick_sums(rotating_slice(parameters, update_index))
    fits = sum(weight.numel() for weight in parameters.values()) <= MAX_WEIGHTS
    following = after if fits else quick_sums(rotating_slice(parameters, update_index + 1))
    still = sorted(name for name in due_to_move if before[name] == after[name])
    return {
        "before": joint_sum(before),
        "after": joint_sum(after),
        "next": joint_sum(following),
        "still": still,
    }
