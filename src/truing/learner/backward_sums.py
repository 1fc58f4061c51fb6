"""Whether what the backward passes of an update handed over is what the optimiser gets.

Some entries of every weight's gradient are added up as each backward pass hands them over, and compared with
the gradient at the optimiser's step. That costs little, so it is done in every update; what a backward pass
itself gets wrong is for the looks (arrival.py).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

ENTRIES_PER_WEIGHT = 16
"""Of each weight, evenly spread."""

TOLERANCE_EPS = 32
"""Last digits that sums in another order, and the product with the clip's factor, may take."""


@dataclass(eq=False)
class BackwardSums:
    """What the backward passes of one update handed over, by weight."""

    backward_pass: int = -1  # the backward pass that goes on, from 0
    sums: dict[str, Tensor] = field(default_factory=dict[str, Tensor])  # [n] float64, of some entries
    abs_sums: dict[str, Tensor] = field(default_factory=dict[str, Tensor])  # of the same, each by its size
    passes_by_weight: dict[str, list[int]] = field(
        default_factory=dict[str, list[int]]
    )  # that handed anything over

    def add(self, name: str, gradient: Tensor) -> None:
        """Take in what one backward pass hands to a weight."""
        part = sampled_entries(gradient)
        self.passes_by_weight.setdefault(name, []).append(self.backward_pass)
        self.sums[name] = self.sums[name] + part if name in self.sums else part
        self.abs_sums[name] = self.abs_sums[name] + part.abs() if name in self.abs_sums else part.abs()


def sampled_entries(gradient: Tensor) -> Tensor:
    """Entries of a gradient, evenly spread: [n] float64."""
    flat = gradient.detach().reshape(-1)
    return flat[:: max(1, len(flat) // ENTRIES_PER_WEIGHT)][:ENTRIES_PER_WEIGHT].double()


@contextmanager
def record_backward(parameters: Mapping[str, nn.Parameter]) -> Iterator[BackwardSums]:
    """Note what backward passes within the block hand over."""
    found = BackwardSums()

    def taker(name: str) -> Callable[[Tensor], None]:
        return lambda gradient: found.add(name, gradient)

    handles = [weight.register_hook(taker(name)) for name, weight in parameters.items()]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def check_at_optimizer(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter], handed: BackwardSums
) -> Iterator[list[dict[str, Any]]]:
    """Compare what was handed over with what the optimiser gets: a fact for each of its steps."""
    facts: list[dict[str, Any]] = []

    def compare(*_: object) -> None:
        facts.append(
            backward_sum_fact(handed, parameters) | {"missed": missed_passes(handed, optimizer, parameters)}
        )

    handle = optimizer.register_step_pre_hook(compare)
    try:
        yield facts
    finally:
        handle.remove()


def backward_sum_fact(handed: BackwardSums, parameters: Mapping[str, nn.Parameter]) -> dict[str, Any]:
    """Weights whose gradient at the optimiser is not the sum of what they were handed, times one factor.

    ``factor`` is what most gradients were multiplied by on their way: the clip's.
    """
    names = [name for name in handed.sums if handed.sums[name].any()]
    got = [name for name, weight in parameters.items() if weight.grad is not None]
    foreign = [name for name in got if name not in handed.sums]
    fact: dict[str, Any] = {
        "weights": len(handed.sums),
        "wrong": [],
        "count": 0,
        "relative": 0.0,
        "foreign": foreign[:3],
    }
    if not names:
        return fact | {"wrong": [], "count": 0, "relative": 0.0, "factor": None}
    sum_N, size_N = (
        torch.cat([each[name].cpu() for name in names]) for each in (handed.sums, handed.abs_sums)
    )
    got_N = torch.cat([_entries_or_zero(parameters[name].grad, handed.sums[name]).cpu() for name in names])
    owner_N = torch.repeat_interleave(torch.tensor([len(handed.sums[name]) for name in names]))
    digit_N = torch.tensor([torch.finfo(parameters[name].dtype).eps for name in names]).double()[owner_N]

    def by_weight(x_N: Tensor) -> Tensor:
        return torch.zeros(len(names), dtype=torch.float64).index_add(0, owner_N, x_N)

    factor = float((by_weight(got_N * sum_N) / by_weight(sum_N.square())).median())
    apart_N = (got_N - factor * sum_N).abs()
    off_W = by_weight((apart_N > TOLERANCE_EPS * digit_N * abs(factor) * size_N).double()) > 0
    relative_W = (
        by_weight(apart_N.square()) / (factor**2 * by_weight(sum_N.square())).clamp(min=1e-300)
    ).sqrt()
    wrong = sorted(off_W.nonzero()[:, 0].tolist(), key=lambda w: -float(relative_W[w]))
    return fact | {
        "wrong": [names[w] for w in wrong[:3]],
        "count": len(wrong),
        "relative": float(relative_W[wrong[0]]) if wrong else 0.0,
        "factor": factor,
    }


def _entries_or_zero(gradient: Tensor | None, like_n: Tensor) -> Tensor:
    """The same entries of the gradient that the optimiser gets; 0 where there is none."""
    return torch.zeros_like(like_n) if gradient is None else sampled_entries(gradient)


def missed_passes(
    handed: BackwardSums, optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]
) -> dict[str, int]:
    """Weights that a pass gave nothing, though others do, or updates before did, with the first such pass."""
    passes, found = range(handed.backward_pass + 1), dict[str, int]()
    for name, weight in parameters.items():
        given = handed.passes_by_weight.get(name, [])
        if given or weight in optimizer.state:
            first = next((turn for turn in passes if turn not in given), None)
            found |= {} if first is None else {name: first}
    return found
