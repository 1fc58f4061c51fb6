"""Sums of the gradients of all backward passes of an optimizer step, compared with the optimizer's gradient.

Each backward pass adds some entries of every weight's gradient; at ``optimizer.step()`` their sum must equal
the accumulated gradient. This costs little and is done at every step. Errors within a backward pass are found
by audits (measurements/row_gradients.py).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from truing.distributed.packed_table import pack, unpack
from truing.distributed.ranks import Ranks
from truing.distributed.sharded_tensors import entries

ENTRIES_PER_WEIGHT = 16
"""Entries per weight, evenly spread."""

TOLERANCE_EPS = 32
"""Rounding, in units of eps, of sums in another order and of the product with the clip factor."""


@dataclass(eq=False)
class GradientSums:
    """Summed gradients of the backward passes of one optimizer step, by weight."""

    passes: Sequence[object]  # that have begun; the last one is the current
    sums: dict[str, Tensor] = field(default_factory=dict[str, Tensor])  # [n] float64, of some entries
    abs_sums: dict[str, Tensor] = field(default_factory=dict[str, Tensor])  # [n], of their absolute values
    # indices of the passes that gave a weight a gradient
    passes_by_weight: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def exchange(self, ranks: Ranks) -> None:
        """Add the sums of the other ranks; a pass counts for a weight if it gave one on every rank."""
        # in main memory: what a rank unpickles is on the device that the other one had
        sums, abs_sums = (pack(_on_cpu(table)) for table in (self.sums, self.abs_sums))
        parts = ranks.gather("the exchange of gradient sums", (sums, abs_sums, self.passes_by_weight))
        self.sums = _summed([unpack(part[0]) for part in parts])
        self.abs_sums = _summed([unpack(part[1]) for part in parts])
        self.passes_by_weight = {
            name: [index for index in passes if all(index in other[2].get(name, []) for other in parts)]
            for name, passes in self.passes_by_weight.items()
        }

    def add(self, name: str, gradient: Tensor) -> None:
        """Add the gradient that the current backward pass gives a weight."""
        (part,) = sampled_entries([gradient])
        self.passes_by_weight.setdefault(name, []).append(len(self.passes) - 1)
        self.sums[name] = self.sums[name] + part if name in self.sums else part
        self.abs_sums[name] = self.abs_sums[name] + part.abs() if name in self.abs_sums else part.abs()


def sampled_entries(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return some entries of each gradient, evenly spread: [n] float64."""
    return entries([gradient.detach() for gradient in gradients], list(map(_indices, gradients)))


def _indices(gradient: Tensor) -> Tensor:
    step = max(1, gradient.numel() // ENTRIES_PER_WEIGHT)
    return torch.arange(0, gradient.numel(), step)[:ENTRIES_PER_WEIGHT]


def _on_cpu(table: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a table of tensors in main memory."""
    return {name: each.cpu() for name, each in table.items()}


def _summed(tables: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the sum of tables of tensors, name by name."""
    names = dict.fromkeys(name for table in tables for name in table)
    return {name: torch.stack([table[name] for table in tables if name in table]).sum(0) for name in names}


@contextmanager
def record_backward(
    parameters: Mapping[str, nn.Parameter], passes: Sequence[object]
) -> Iterator[GradientSums]:
    """Sum the gradients of the backward passes within the block; ``passes`` gets an item when one begins."""
    sums = GradientSums(passes)

    def hook(name: str) -> Callable[[Tensor], None]:
        return lambda gradient: sums.add(name, gradient)

    # gathered weights have the flag of their last forward, which may have been the reference's
    handles = [weight.requires_grad_(True).register_hook(hook(name)) for name, weight in parameters.items()]
    try:
        yield sums
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True)
class Comparison:
    """The optimizer's gradient beside factor × the sum of the backward passes; ``factor`` is the clip's."""

    weights: int  # with a sum
    foreign: list[str]  # that have a gradient, and no sum: the first three
    missed: dict[str, int]  # by weight: the first backward pass without a gradient, if another gave one
    wrong: list[str]  # the three that differ most
    count: int  # of weights that differ
    relative: float  # the largest difference, in lengths of the expected gradient
    factor: float | None  # the median ratio over weights; None without a gradient


def compare_at_optimizer(
    sums: GradientSums, optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]
) -> Comparison:
    """Compare the sums with the gradients that the optimizer has."""
    names = [name for name in sums.sums if sums.sums[name].any()]
    with_gradient = [name for name, weight in parameters.items() if weight.grad is not None]
    foreign = [name for name in with_gradient if name not in sums.sums][:3]
    missed = missed_passes(sums, optimizer, parameters)
    about = len(sums.sums), foreign, missed
    if not names:
        return Comparison(*about, wrong=[], count=0, relative=0.0, factor=None)
    sum_N, size_N = (torch.cat([table[name].cpu() for name in names]) for table in (sums.sums, sums.abs_sums))
    gradient_N = torch.cat(_entries_or_zero([parameters[name] for name in names])).cpu()
    owner_N = torch.repeat_interleave(torch.tensor([len(sums.sums[name]) for name in names]))
    dtypes = [torch.finfo(parameters[name].dtype) for name in names]
    eps_N, tiny_N = (
        torch.tensor(each, dtype=torch.float64)[owner_N]
        for each in ([dtype.eps for dtype in dtypes], [dtype.tiny for dtype in dtypes])
    )

    def by_weight(x_N: Tensor) -> Tensor:
        return torch.zeros(len(names), dtype=torch.float64).index_add(0, owner_N, x_N)

    square_W = by_weight(sum_N.square())
    has_all_digits_W = square_W > by_weight((tiny_N / eps_N).square())
    counted_W = has_all_digits_W if has_all_digits_W.any() else square_W > 0
    factor = float((by_weight(gradient_N * sum_N) / square_W)[counted_W].median())
    difference_N = (gradient_N - factor * sum_N).abs()
    # below the smallest normal number, tiny, a product keeps fewer digits, or none
    rounding_N = TOLERANCE_EPS * eps_N * abs(factor) * size_N + tiny_N
    wrong_W = by_weight((difference_N > rounding_N).double()) > 0
    relative_W = (by_weight(difference_N.square()) / (factor**2 * square_W).clamp(min=1e-300)).sqrt()
    wrong = sorted(wrong_W.nonzero()[:, 0].tolist(), key=lambda w: -float(relative_W[w]))
    return Comparison(
        *about,
        wrong=[names[w] for w in wrong[:3]],
        count=len(wrong),
        relative=float(relative_W[wrong[0]]) if wrong else 0.0,
        factor=factor,
    )


def _entries_or_zero(weights: Sequence[nn.Parameter]) -> list[Tensor]:
    """Return the same entries of the optimizer's gradients; 0 where there is none."""
    return sampled_entries([torch.zeros_like(each) if each.grad is None else each.grad for each in weights])


def missed_passes(
    sums: GradientSums, optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]
) -> dict[str, int]:
    """Return the first backward pass without a gradient, by weight, for weights that otherwise get one."""
    passes, missed = range(len(sums.passes)), dict[str, int]()
    for name, weight in parameters.items():
        with_gradient = sums.passes_by_weight.get(name, [])
        if with_gradient or weight in optimizer.state:
            first = next((index for index in passes if index not in with_gradient), None)
            missed |= {} if first is None else {name: first}
    return missed
