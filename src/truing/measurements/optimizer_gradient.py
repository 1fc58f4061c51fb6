"""The optimizer's gradient beside the sum of what the backward passes gave."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch

from truing.learner.learner import Learner
from truing.learner.optimizer_step import OptimizerStep
from truing.measurements.backward_sums import (
    Comparison,
    GradientSums,
    compare_at_optimizer,
    record_backward,
)
from truing.measurements.checked_rows import without_dropout
from truing.measurements.gradient_comparison import MIN_GRADIENT_MASS, gradient_mass
from truing.measurements.measurement import MeasuredStep, Measurement
from truing.measurements.missing_gradients import MAX_ROWS, has_gradient, missing_gradient_of
from truing.types.facts import Facts
from truing.types.weight_facts import BackwardSums, MissingGradient


@dataclass
class _Sums:
    """Sums of one optimizer step, of policy and critic, and comparisons at each ``optimizer.step()``."""

    step: OptimizerStep
    groups: list[GradientSums]
    is_due: bool = False  # whether the optimizer is to step
    comparisons: list[list[Comparison]] = field(default_factory=list[list[Comparison]])


class OptimizerGradient(Measurement):
    """The optimizer's gradient beside the sum over all backward passes, some entries per weight."""

    facts = ("backward_sums",)
    cost = "16 entries per weight at each backward pass; once in a stage, some forwards of 4 rows"

    def __init__(self, step: MeasuredStep) -> None:
        super().__init__(step)
        self._sums: list[_Sums] = []

    @contextmanager
    def on_backward(self, this: OptimizerStep) -> Iterator[None]:
        """Sum the gradients that backward passes within the block produce, on all ranks."""
        learner = self.step.learner
        with ExitStack() as stack:
            groups = [
                stack.enter_context(record_backward(each, this.micro_batches))
                for each in learner.computed_groups
            ]
            yield
        for sums in groups:
            sums.exchange(learner.ranks)
        self._sums.append(_Sums(this, groups))

    @contextmanager
    def on_optimizer(self, this: OptimizerStep) -> Iterator[None]:
        """Note that the optimizer is to step within the block."""
        self._sums[-1].is_due = True
        yield

    def before_optimizer(self) -> None:
        """Compare those sums with the gradients that the optimizer gets."""
        learner = self.step.learner
        if self._sums:
            pairs = zip(self._sums[-1].groups, learner.parameter_groups(), strict=True)
            compared = [compare_at_optimizer(sums, learner.optimizer, group) for sums, group in pairs]
            self._sums[-1].comparisons.append(compared)

    def after_step(self) -> Facts:
        """Return the worst comparison; test for missing gradients until a step of the stage reports them."""
        is_tested = any("silent" in past.get("backward_sums", {}) for past in self.step.past)
        return backward_sum_facts(self.step.learner, self._sums, test_missing=not is_tested)


def backward_sum_facts(learner: Learner, steps: Sequence[_Sums], *, test_missing: bool) -> Facts:
    """Return the fact ``backward_sums``: those sums compared with the gradient of each optimizer step.

    Args:
        learner: after the step.
        steps: the optimizer steps.
        test_missing: whether to test if the loss depends on weights that a pass gave no gradient.
    """
    stepped = [each for each in steps if each.is_due]
    checks = [one for each in stepped for at_step in each.comparisons for one in at_step]
    if not checks:
        return {}
    worst = max(checks, key=lambda one: (one.count, len(one.foreign), one.relative))
    last = [one.factor for one in stepped[-1].comparisons[-1]] if stepped[-1].comparisons else [None]
    fact: BackwardSums = {
        "weights": worst.weights,
        "wrong": worst.wrong,
        "count": worst.count,
        "relative": worst.relative,
        "foreign": worst.foreign,
        "steps": len(stepped),
        "calls": sum(len(each.comparisons) for each in stepped),
        "factor": last[0],
        "ranks": learner.ranks.size,
    }
    if len(last) > 1:
        fact["critic_factor"] = last[1]
    silent = next((each for each in stepped if each.comparisons and each.comparisons[0][0].missed), None)
    if silent is not None:
        missed = silent.comparisons[0][0].missed
        fact["silent"], fact["silent_count"] = sorted(missed)[:3], len(missed)
        fact["missing_gradient"] = (
            _missing_gradient_of(learner, silent.step, missed) if test_missing else None
        )
    return {"backward_sums": fact}


def _missing_gradient_of(
    learner: Learner, step: OptimizerStep, missed: Mapping[str, int]
) -> MissingGradient | None:
    """Return the weight without a gradient from a pass that the pass's rows depend on most, if any."""
    first_pass = min(missed.values())
    names = [name for name, first in missed.items() if first == first_pass]
    computed = [
        row for micro in step.micro_batches[first_pass] if not micro.is_padding for row in micro.samples
    ]
    rows = [row for row in computed if bool(has_gradient(step, row).any())][:MAX_ROWS]
    if not rows:
        return None
    token_gradient_K, logprob_K = (
        torch.cat([step.stream(name, row)[has_gradient(step, row)] for row in rows])
        for name in ("token_gradient", "new_logprob")
    )
    if gradient_mass(token_gradient_K, logprob_K)["free"] <= MIN_GRADIENT_MASS:
        return None
    with without_dropout(learner):
        return missing_gradient_of(learner, names, rows, step)
