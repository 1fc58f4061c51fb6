"""The optimizer's gradient beside the sum over the rows of the first minibatch.

Before the first optimizer step, the trainer's own loss runs backward on smaller micro-batches; later the
optimizer's gradient is compared with their sum. A gradient that is lost, counted twice, cleared or negated on
its way to the optimizer shows as a difference.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from truing.learner.learner import Learner
from truing.learner.optimizer import gradient_norm
from truing.learner.optimizer_step import OptimizerStep
from truing.learner.step import backward
from truing.measurements.checked_rows import without_dropout
from truing.measurements.draw_replay import has_active_dropout
from truing.measurements.gradient_comparison import (
    MIN_GRADIENT_MASS,
    attention_rounding,
    compare_gradients,
    flat_gradient,
    gradient_mass,
    is_missing,
)
from truing.measurements.measurement import MeasuredStep, Measurement
from truing.measurements.missing_gradients import MAX_ROWS, missing_gradient_of
from truing.models.forward.hidden_states import MicroBatch
from truing.models.forward.rounding_noise import is_coarse, random_rounding
from truing.models.forward.score import computed_precision
from truing.models.forward.tree_attention import largest_scores
from truing.types.sample import Sample
from truing.types.weight_facts import GradientMass, RowGradients


class SumOfRows(Measurement):
    """The sum of the rows' gradients by the trainer's own loss in smaller micro-batches, and the optimizer's.

    Not with dropout: its noise would be in the sum, and in what rounding changes.
    """

    facts = ("row_gradients",)
    cost = "a forward and a backward of the first minibatch; not in float32, twice that"
    audit = "gradient"

    def __init__(self, step: MeasuredStep) -> None:
        super().__init__(step)
        self._sum: tuple[dict[str, Any], Tensor, OptimizerStep] | None = None
        self._first: OptimizerStep | None = None  # of the trainer itself; None where dropout is active

    def before_optimizer_steps(self, minibatch: Sequence[Sample]) -> None:
        """Sum the rows' gradients."""
        learner = self.step.learner
        if self.step.has_dropout:
            return
        with without_dropout(learner):
            fact, expected_P, rows, tokens = _gradient_sum(learner, minibatch, self.step.step_index)
        self._sum, self.audited_tokens = (fact, expected_P, rows), tokens

    @contextmanager
    def on_backward(self, this: OptimizerStep) -> Iterator[None]:
        """Keep the first optimizer step, whose log-probabilities are compared with those of the rows."""
        if this.index == 0 and not has_active_dropout(self.step.learner.model):
            self._first = this
        yield

    def before_optimizer(self) -> None:
        """Compare the first gradient that the optimizer gets with the sum."""
        if self._sum is not None:
            (fact, expected_P, rows), self._sum = self._sum, None
            if self._first is not None:
                fact["logprob"] = _apart(rows, self._first)
            got_P = flat_gradient(self.step.learner.parameters, self.step.step_index)
            self.found = {"row_gradients": RowGradients(**fact, **compare_gradients(expected_P, got_P))}


def _apart(rows: OptimizerStep, first: OptimizerStep) -> float:
    """Return how far the log-probabilities of two forwards of the same samples are, nats; 0 without any."""
    differences = [
        (rows.stream("new_logprob", row) - first.stream("new_logprob", row)).abs().nan_to_num(0.0).max()
        for row in rows.computed
    ]
    return float(torch.stack(differences).max()) if differences else 0.0


def _gradient_sum(
    learner: Learner, minibatch: Sequence[Sample], step_index: int
) -> tuple[dict[str, Any], Tensor, OptimizerStep, int]:
    """Return facts on the sum of the rows' gradients, the sum of this step's weights, and tokens computed.

    The sum is [P] float64. Before the tokens come the forwards of the rows.
    """
    terms = learner.algorithm.terms(learner.setting)
    trained = [row for row in minibatch if any(term.has_gradient(row) for term in terms)]
    as_trained = list(learner.memory_budget.micro_batches(learner.model, trained))
    smaller, rows = _smaller(learner, trained, as_trained), OptimizerStep(0, minibatch)
    device, rounded_P = computed_precision(learner.model), None
    computed = [*smaller, *(as_trained if is_coarse(device) else [])]
    if is_coarse(device):
        with random_rounding(learner.model, step_index):
            # in the trainer's micro-batches: where rows share a prefix they share its rounding too
            _add_gradients(learner, minibatch, as_trained, OptimizerStep(0, minibatch))
        rounded_P = flat_gradient(learner.parameters, step_index) / learner.ranks.size
        learner.optimizer.zero_grad(set_to_none=True)
    with largest_scores() as scores:
        _add_gradients(learner, minibatch, smaller, rows)
    norm = float(gradient_norm(learner.parameters)) / learner.ranks.size
    clipped = min(1.0, learner.optimizer_cfg.max_grad_norm / norm) if norm else 1.0
    expected_P = clipped * flat_gradient(learner.parameters, step_index) / learner.ranks.size
    without_gradient = [name for name, weight in learner.parameters.items() if is_missing(weight.grad)]
    learner.optimizer.zero_grad(set_to_none=True)
    mass = _mass_of(rows, clipped)
    fact: dict[str, Any] = {**mass, "rows": len(rows.computed), "device": device}
    attention = attention_rounding(scores, expected_P)
    if rounded_P is None and attention is not None:
        fact["attention"] = attention
    if rounded_P is not None:
        fact["rounding"] = float((clipped * rounded_P - expected_P).norm())
    tested = rows.computed[:MAX_ROWS]
    if tested and mass["free"] > MIN_GRADIENT_MASS:
        fact["missing_gradient"] = missing_gradient_of(learner, without_gradient, tested, rows)
    return fact, expected_P, rows, sum(micro.tokens for micro in computed)


def _mass_of(rows: OptimizerStep, clipped: float) -> GradientMass:
    """Return ``gradient_mass`` of all computed tokens, whose gradients are clipped by a factor."""
    token_gradient_N, logprob_N = (
        torch.cat([torch.zeros(0), *(rows.stream(name, row) for row in rows.computed)])
        for name in ("token_gradient", "new_logprob")
    )
    return gradient_mass(clipped * token_gradient_N, logprob_N)


def _smaller(learner: Learner, rows: Sequence[Sample], as_trained: Sequence[MicroBatch]) -> list[MicroBatch]:
    """Split rows into parts of half as many as the trainer's largest micro-batch has, or of one.

    Rows and not tokens: parts of a long prompt that all rows share are hardly smaller than the whole. Each
    part is split by itself, so that a fault in how the trainer splits all rows is not repeated here.
    """
    most = max(1, max((len(micro.samples) for micro in as_trained), default=0) // 2)
    parts = [rows[start : start + most] for start in range(0, len(rows), most)]
    return [micro for part in parts for micro in learner.memory_budget.micro_batches(learner.model, part)]


def _add_gradients(
    learner: Learner, minibatch: Sequence[Sample], micro_batches: Sequence[MicroBatch], rows: OptimizerStep
) -> None:
    """Run the trainer's own loss of a minibatch backward on these micro-batches of it."""
    terms = learner.algorithm.terms(learner.setting)
    terms_with_denominator = [(term, term.denominator(minibatch)) for term in terms]
    for micro in micro_batches:
        backward(learner, micro, terms_with_denominator, rows, "the doctor's audit")
