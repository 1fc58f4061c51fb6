"""Digests of the weights around a step: what it changed, and whether anything else did."""

import math
from collections.abc import Collection, Mapping
from typing import Any

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

ROUNDINGS = 2
"""Roundings of a weight that a change exceeds: decay and step round one after the other."""


class WeightDigests(Measurement):
    """Digests of the weights before and after a step, and the weights that should have changed and did not.

    The digest of the next step's slice shows changes between steps.
    """

    facts = ("weights",)
    cost = "two sums over at most 8 million weights, and a copy of these"

    def __init__(self, step: MeasuredStep) -> None:
        super().__init__(step)
        self._due_to_move: set[str] = set()
        self._before = copied_slice(step.learner.parameters, step.step_index)

    def before_optimizer(self) -> None:
        """Note which weights must change."""
        learner = self.step.learner
        due = weights_due_to_move(learner.parameters, self.step.step_index, learner.optimizer)
        self._due_to_move.update(due)

    def after_step(self) -> Facts:
        """Return the digests."""
        parameters, index = self.step.learner.parameters, self.step.step_index
        return {"weights": weight_facts(parameters, index, self._before, self._due_to_move)}


def rotating_slice(
    parameters: Mapping[str, Tensor], step_index: int, max_entries: int = MAX_WEIGHTS
) -> dict[str, Tensor]:
    """Return all weights, or, if there are more than ``max_entries``, this step's slice of them.

    Slices advance through all weights in the order of their names and start over after the last.
    """
    return _cut(parameters, _bounds(parameters, step_index, max_entries))


def copied_slice(parameters: Mapping[str, Tensor], step_index: int) -> dict[str, Tensor]:
    """Return a copy of a step's slice of the weights."""
    return {name: weight.clone() for name, weight in rotating_slice(parameters, step_index).items()}


def _bounds(
    parameters: Mapping[str, Tensor], step_index: int, max_entries: int = MAX_WEIGHTS
) -> dict[str, slice | None]:
    """Return which entries of each weight a step's slice has, flat; None is a weight in its shape."""
    total = sum(weight.numel() for weight in parameters.values())
    if total <= max_entries:
        return dict.fromkeys(parameters)
    start, position = step_index % math.ceil(total / max_entries) * max_entries, 0
    bounds = dict[str, slice | None]()
    for name in sorted(parameters):
        length = parameters[name].numel()
        low, high = max(start - position, 0), min(start + max_entries - position, length)
        if low < high:
            bounds[name] = slice(low, high)
        position += length
    return bounds


def _cut(tables: Mapping[str, Tensor], bounds: Mapping[str, slice | None]) -> dict[str, Tensor]:
    """Return the entries of tables that lie within bounds."""
    whole = whole_tables({name: tables[name].detach() for name in bounds})
    return {
        name: whole[name] if within is None else whole[name].reshape(-1)[within]
        for name, within in bounds.items()
    }


def weights_due_to_move(
    parameters: Mapping[str, Tensor], step_index: int, optimizer: torch.optim.Optimizer
) -> list[str]:
    """Return the float32 weights that AdamW must change: some entry moves by more than its rounding.

    The change follows from the gradient and the optimizer's moments. Late in training, where the gradient is
    far below those that the second moment remembers, and at the end of a schedule, rounding absorbs it.
    """
    rates = {id(each): group for group in optimizer.param_groups for each in group["params"]}
    default = optimizer.param_groups[0]  # of a weight that the optimizer does not hold, and should
    bounds = _bounds(parameters, step_index)
    held = {name: parameters[name] for name in bounds}
    changes = {
        name: _change(weight, optimizer.state.get(weight, {}), rates.get(id(weight), default))
        for name, weight in held.items()
    }
    weights, names = _cut(held, bounds), list[str]()
    for name, change in _cut(changes, bounds).items():
        if parameters[name].dtype is torch.float32:
            rounding = torch.finfo(torch.float32).eps * weights[name].detach().abs()
            if bool((change > ROUNDINGS * rounding).any()):
                names.append(name)
    return names


def _change(weight: Tensor, state: Mapping[str, Any], group: Mapping[str, Any]) -> Tensor:
    """Return by how much AdamW changes each entry, in the shape of the weight.

    lr |m̂ ÷ (√v̂ + ε) + decay w|, with the moments m and v after this gradient; where there are none yet, or
    the optimizer has others, lr for each gradient far above ε.
    """
    if (gradient := weight.grad) is None:
        return torch.zeros_like(weight)
    if not {"exp_avg", "exp_avg_sq", "step"} <= {*state}:
        return float(group["lr"]) * (gradient.abs() > MIN_GRADIENT)
    (beta1, beta2), count = group["betas"], float(state["step"]) + 1
    first = (beta1 * state["exp_avg"] + (1 - beta1) * gradient) / (1 - beta1**count)
    second = (beta2 * state["exp_avg_sq"] + (1 - beta2) * gradient**2) / (1 - beta2**count)
    step = first / (second.sqrt() + group["eps"]) + group["weight_decay"] * weight.detach()
    return float(group["lr"]) * step.abs()


def weight_facts(
    parameters: Mapping[str, Tensor],
    step_index: int,
    before: Mapping[str, Tensor],
    due_to_move: Collection[str],
) -> Weights:
    """Return the fact ``weights``: digests before and after a step, and unchanged weights.

    Weights are compared one by one: equal sums do not prove that they are equal.
    """
    now = rotating_slice(parameters, step_index)
    after = joint_sum(quick_sums(now))
    fits = sum(weight.numel() for weight in parameters.values()) <= MAX_WEIGHTS
    unchanged = {name for name, weight in now.items() if torch.equal(weight, before[name])}
    return {
        "before": joint_sum(quick_sums(before)),
        "after": after,
        "next": after if fits else joint_sum(quick_sums(rotating_slice(parameters, step_index + 1))),
        "moved": len(unchanged) < len(now),
        "still": sorted(unchanged.intersection(due_to_move)),
    }
