"""The rows of a minibatch that a plain forward and a plain backward compute."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest

from truing.learner.learner import Learner
from truing.learner.optimizer_step import loss_mask
from truing.models.lora import training_mode
from truing.types.sample import Sample

MAX_TOKENS, MAX_ROWS = 512, 4
"""Rows are checked up to this many tokens; at least two rows and at most ``MAX_ROWS``."""


def alternating(shares: Sequence[Sequence[Sample]]) -> list[Sample]:
    """Return the rows of all ranks, one of each in turn, so that the first rows are of every rank."""
    return [row for each in zip_longest(*shares) for row in each if row is not None]


def rows_to_check(minibatch: Sequence[Sample]) -> list[Sample]:
    """Return the rows to check: first those with a nonzero advantage, in the minibatch's order."""
    scored = [sample for sample in minibatch if loss_mask(sample).any()]
    with_advantage = [row for row in scored if bool((row.advantage.nan_to_num() != 0).any())]
    rows: list[Sample] = []
    for row in [*with_advantage, *(row for row in scored if row not in with_advantage)]:
        if len(rows) >= 2 and (len(rows) == MAX_ROWS or sum(map(len, rows)) + len(row) > MAX_TOKENS):
            break
        rows.append(row)
    return rows


@contextmanager
def without_dropout(learner: Learner) -> Iterator[None]:
    """Compute without dropout within the block, and clear the gradients that it leaves."""
    learner.model.eval()
    try:
        yield
    finally:
        training_mode(learner.model)
        learner.optimizer.zero_grad(set_to_none=True)
