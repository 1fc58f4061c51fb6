"""Whether the trained rows of an optimizer step depend on weights that got no gradient from them."""

from collections.abc import Sequence
from itertools import count

import torch
from torch import Tensor

from truing.learner.learner import Learner
from truing.learner.optimizer_step import OptimizerStep, loss_mask
from truing.measurements.weights_without_gradient import LogprobFn, missing_gradient
from truing.models.forward.collate import collate
from truing.models.forward.rounding_noise import is_coarse, random_rounding
from truing.models.forward.score import computed_precision, score
from truing.types.sample import Sample
from truing.types.weight_facts import MissingGradient

MAX_ROWS = 4
"""Rows that test for missing gradients."""


def missing_gradient_of(
    learner: Learner, names: Sequence[str], tested: Sequence[Sample], rows: OptimizerStep
) -> MissingGradient | None:
    """Return the fact on weights ``names``, which have no gradient: whether rows depend on them."""
    token_gradient_K = torch.cat(
        [rows.stream("token_gradient", row)[has_gradient(rows, row)] for row in tested]
    )
    return missing_gradient(
        learner.parameters,
        names,
        lambda: _row_logprobs(learner, tested, rows),
        token_gradient_K,
        _rounded_logprobs(learner, tested, rows),
        coarse=is_coarse(computed_precision(learner.model)),
    )


def has_gradient(step: OptimizerStep, row: Sample) -> Tensor:
    """Return the tokens of a row with a gradient: [T] bool; none if no backward pass had the row."""
    return loss_mask(row) & (step.stream("token_gradient", row).nan_to_num() != 0)


@torch.no_grad()
def _row_logprobs(learner: Learner, rows: Sequence[Sample], step: OptimizerStep) -> Tensor:
    """Return the log-probabilities of the tokens with a gradient: [K]."""
    batch = collate(rows)
    logprob_BT = score(learner.model, batch, loss_mask(batch)).logprob.cpu()
    return torch.cat([logprob_BT[b, : len(row)][has_gradient(step, row)] for b, row in enumerate(rows)])


def _rounded_logprobs(learner: Learner, rows: Sequence[Sample], step: OptimizerStep) -> LogprobFn:
    """Return a function that computes the same under random rounding, another one at each call."""
    seeds = count()

    def rounded() -> Tensor:
        with random_rounding(learner.model, next(seeds)):
            return _row_logprobs(learner, rows, step)

    return rounded
