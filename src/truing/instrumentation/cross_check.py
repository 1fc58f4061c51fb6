"""The cross-check of an update: some rows by a plain forward, compared with sampler, trainer and reference.

It runs before the update and changes no weight, no RNG state and no optimizer state.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from truing.config import Recipe
from truing.doctor.truing_run import setup_of
from truing.engines.local.engine import LocalEngine
from truing.instrumentation.forward_check import plain_facts, rounding_fact
from truing.instrumentation.plain_gradient import PlainGradient
from truing.instrumentation.route_check import route_facts
from truing.instrumentation.sync_check import sync_facts
from truing.learner.learner import Learner
from truing.learner.optimizer_step import loss_mask
from truing.models.digest import quick_sum
from truing.models.forward.collate import collate
from truing.models.forward.score import score
from truing.models.lora import training_mode
from truing.ops.kl import kl_k3
from truing.rollouts.sampler import Sampler
from truing.types.sample import Sample

MAX_TOKENS, MAX_ROWS = 512, 4
"""Rows are checked up to this many tokens; at least two rows and at most ``MAX_ROWS``."""


@dataclass(frozen=True, eq=False)
class CrossCheck:
    """Cross-check of one update; ``update_index`` selects the weights, if there are too many."""

    recipe: Recipe
    sampler: Sampler
    stage: str
    update_index: int

    def row_facts(self, learner: Learner, minibatch: Sequence[Sample]) -> dict[str, Any]:
        """Return the facts ``null``, ``plain`` and ``routes`` of some rows."""
        if not (rows := rows_to_check(minibatch)):
            return {}
        with _without_dropout(learner):
            together, alone = _scores(learner, [rows]), _scores(learner, [[row] for row in rows])
            null = null_facts(rows, together, alone) | rounding_fact(learner, rows)
            plain = plain_facts(learner, rows, together, alone)
            return {"null": null, "plain": plain, **route_facts(learner, rows)}

    def gradient_facts(self, learner: Learner, minibatch: Sequence[Sample]) -> dict[str, Any]:
        """Return the fact ``gradient`` of the same rows."""
        rows = rows_to_check(minibatch)
        if not rows or setup_of(self.recipe, self.stage).plain is False:
            return {}
        with _without_dropout(learner):
            params = self.sampler.sampling_params
            check = PlainGradient(
                self.recipe, params, self.stage, self.update_index, learner, minibatch, rows
            )
            return {"gradient": check.fact()}

    def weight_facts(self, learner: Learner) -> dict[str, Any]:
        """Return the digest of the reference, and the sync of one layer to the sampler."""
        facts: dict[str, Any] = {}
        if learner.reference is not None:
            digest = quick_sum(learner.reference.weights())
            facts["reference"] = {"digest": digest, "declared": learner.reference.digest}
        engine = self.sampler.engine
        adapted = self.recipe.lora and learner.algorithm.source == "rollouts"
        if adapted and isinstance(engine, LocalEngine):  # another engine proves each publication itself
            facts["sync"] = sync_facts(learner.model, engine.model, self.recipe, self.update_index)
        return facts


@contextmanager
def _without_dropout(learner: Learner) -> Iterator[None]:
    """Compute without dropout within the block, and clear the gradients that it leaves."""
    learner.model.eval()
    try:
        yield
    finally:
        training_mode(learner.model)
        learner.optimizer.zero_grad(set_to_none=True)


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


def null_facts(
    rows: Sequence[Sample], together: Mapping[str, Tensor], alone: Mapping[str, Tensor]
) -> dict[str, float]:
    """Return how far the trainer is from itself: largest difference, nats, and mean k3, over trained tokens.

    ``together`` and ``alone`` are its log-probabilities by sample, [T], in one batch and row by row.
    """
    together_K, alone_K = (
        torch.cat([logprobs[row.sample_id][loss_mask(row)] for row in rows]).double()
        for logprobs in (together, alone)
    )
    possible_K = torch.isfinite(together_K) & torch.isfinite(alone_K)  # a banned stop id has −∞ in both
    together_k, alone_k = together_K[possible_K], alone_K[possible_K]
    if not len(together_k):
        return {"logprob": 0.0, "k3": 0.0}
    return {
        "logprob": float((together_k - alone_k).abs().max()),
        "k3": float(kl_k3(alone_k, together_k).mean()),
    }


@torch.no_grad()
def _scores(learner: Learner, parts: Iterable[Sequence[Sample]]) -> dict[str, Tensor]:
    """Return the trainer's own log-probabilities, part by part: [T] by sample."""
    logprobs = {}
    for part in parts:
        batch = collate(part)
        logprob_BT = score(learner.model, batch, loss_mask(batch)).logprob.cpu()
        logprobs |= {row.sample_id: logprob_BT[b, : len(row)] for b, row in enumerate(part)}
    return logprobs
