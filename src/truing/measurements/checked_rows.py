"""The rows of a minibatch that a plain forward and a plain backward compute: the key draws all but one."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest

from truing.learner.learner import Learner
from truing.learner.optimizer_step import loss_mask
from truing.measurements.measurement import MeasuredStep
from truing.models.lora import evaluation_mode
from truing.types.sample import Sample
from truing.utils.rng import permutation

MAX_TOKENS, MAX_ROWS = 512, 4
"""Rows are checked up to this many tokens; at least as many as there are ranks, and at most ``MAX_ROWS``."""


def alternating(shares: Sequence[Sequence[Sample]]) -> list[Sample]:
    """Return the rows of all ranks, one of each in turn, so that the first rows are of every rank."""
    return [row for each in zip_longest(*shares) for row in each if row is not None]


def checked_rows(step: MeasuredStep, minibatch: Sequence[Sample]) -> list[Sample]:
    """Return the rows of a step's first minibatch that its audits check, of each rank in turn."""
    key = (step.recipe.seed, step.stage, step.step, "checked")
    shares = step.learner.shares(minibatch)
    drawn = alternating([[share[i] for i in permutation(len(share), *key)] for share in shares])
    return rows_to_check(drawn, first=farthest(drawn), at_least=min(len(shares), MAX_ROWS))


def computed_beside(rows: Sequence[Sample], minibatch: Sequence[Sample]) -> list[Sample]:
    """Return the rows, and beside a single one another row of its group, if any: they share the prompt."""
    if len(rows) > 1:
        return list(rows)
    others = [row for row in minibatch if row is not rows[0]]
    others.sort(key=lambda row: row.group_id != rows[0].group_id)
    return [rows[0], *others[:1]]


def farthest(rows: Sequence[Sample]) -> Sample | None:
    """Return the row with the token that policy and reference score most differently: a wrong row is such."""

    def apart(row: Sample) -> float:
        difference_T = (row.old_logprob - row.ref_logprob).abs().nan_to_num(0.0, posinf=math.inf)
        return float(difference_T.max())

    largest = max(rows, key=apart, default=None)
    return largest if largest is not None and apart(largest) > 0 else None


def rows_to_check(
    minibatch: Sequence[Sample], first: Sample | None = None, at_least: int = 1
) -> list[Sample]:
    """Return the rows to check, in the minibatch's order: ``first``, then those with a nonzero advantage.

    Of these the ones come first that repeat ids, if penalties count ids: elsewhere a count cannot be wrong.
    ``at_least`` rows are returned even if they have more than ``MAX_TOKENS``.
    """
    scored = [sample for sample in minibatch if loss_mask(sample).any()]
    rows: list[Sample] = []
    order = sorted(
        scored,
        key=lambda row: (row is not first, not row.advantage.nan_to_num().any(), -_repeated(row)),
    )
    for row in order:
        if len(rows) >= at_least and (len(rows) == MAX_ROWS or sum(map(len, rows)) + len(row) > MAX_TOKENS):
            break
        rows.append(row)
    return rows


def _repeated(row: Sample) -> int:
    """Return how many ids of a row's turns are repetitions; 0 if no sampling parameter counts them."""
    if not row.sampling_params.counts_generated:
        return 0
    turns = [row.token_ids[turn.start : turn.end] for turn in row.turns]
    return sum(len(ids) - len(ids.unique()) for ids in turns)


@contextmanager
def without_dropout(learner: Learner) -> Iterator[None]:
    """Compute without dropout within the block, and clear the gradients that it leaves."""
    try:
        with evaluation_mode(learner.model):
            yield
    finally:
        learner.optimizer.zero_grad(set_to_none=True)
