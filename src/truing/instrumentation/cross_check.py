"""The cross-check of an update: some rows by a plain forward and backward, compared with the trainer's.

It runs before the update and changes no weight, no RNG state and no optimizer state.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from truing.config import PolicyStage
from truing.doctor.evidence import Step
from truing.doctor.history import History
from truing.doctor.oracle.forward import plain_logprobs
from truing.doctor.oracle.token_gradients import expected_entropy_gradients, expected_token_gradients
from truing.doctor.truing_run import setup_of, step_of
from truing.engines.local.engine import LocalEngine
from truing.instrumentation.forward_check import plain_facts, rounding_fact, row_logits
from truing.instrumentation.gradient_sum_check import compare_gradients, flat_gradient
from truing.instrumentation.route_check import route_facts
from truing.instrumentation.sync_check import sync_facts
from truing.learner.learner import Learner
from truing.learner.session import Session
from truing.learner.step import backward
from truing.learner.trace import Trace, loss_mask
from truing.models.digest import quick_sum
from truing.models.forward.collate import collate
from truing.models.forward.hidden_states import MicroBatch
from truing.models.forward.rounding_noise import is_coarse, random_rounding
from truing.models.forward.score import computed_precision, score
from truing.models.lora import training_mode
from truing.ops.kl import kl_k3
from truing.record import SampleRow
from truing.types.sample import Sample
from truing.types.status import EndedBy, Status

MAX_TOKENS, MAX_ROWS = 512, 4
"""Rows are checked up to this many tokens; at least two rows and at most ``MAX_ROWS``."""


@dataclass(frozen=True, eq=False)
class CrossCheck:
    """Cross-check of one update; ``update_index`` selects the weights, if there are too many."""

    session: Session
    stage: str
    update_index: int

    def row_facts(self, learner: Learner, minibatch: Sequence[Sample]) -> dict[str, Any]:
        """Return the facts ``null``, ``plain`` and ``gradient`` of some rows."""
        learner.model.eval()
        try:
            return self._row_facts(learner, minibatch, rows_to_check(minibatch))
        finally:
            training_mode(learner.model)
            learner.optimizer.zero_grad(set_to_none=True)

    def _row_facts(
        self, learner: Learner, minibatch: Sequence[Sample], rows: Sequence[Sample]
    ) -> dict[str, Any]:
        if not rows:
            return {}
        facts: dict[str, Any] = {}
        together, alone = _scores(learner, [rows]), _scores(learner, [[row] for row in rows])
        facts["null"] = null_facts(rows, together, alone) | rounding_fact(learner, rows)
        facts["plain"] = plain_facts(learner, rows, together, alone)
        facts |= route_facts(learner, rows)
        if setup_of(self.session.recipe, self.stage).plain is not False:
            facts["gradient"] = self._gradient(learner, minibatch, rows, together)
        return facts

    def weight_facts(self, learner: Learner) -> dict[str, Any]:
        """Return the digest of the reference, and the sync of one layer to the sampler."""
        facts: dict[str, Any] = {}
        if learner.reference is not None:
            digest = quick_sum(learner.reference.weights())
            facts["reference"] = {"digest": digest, "declared": learner.reference.digest}
        engine = self.session.engine
        adapted = self.session.recipe.lora and learner.algorithm.source == "rollouts"
        if adapted and isinstance(engine, LocalEngine):  # another engine proves each publication itself
            facts["sync"] = sync_facts(learner.model, engine.model, self.session.recipe, self.update_index)
        return facts

    def _gradient(
        self,
        learner: Learner,
        minibatch: Sequence[Sample],
        rows: Sequence[Sample],
        logprobs: Mapping[str, Tensor],
    ) -> dict[str, Any]:
        """Compare the trainer's gradient of some rows with that of a plain forward and the declared loss."""
        step = self._step(learner, minibatch, logprobs)
        plain_P = self._plain_gradient(learner, step, minibatch, rows)
        together_P = self._trainer_gradient(learner, minibatch, [list(rows)])
        alone_P = self._trainer_gradient(learner, minibatch, [[row] for row in rows])
        device, rounding = computed_precision(learner.model), dict[str, float]()
        if is_coarse(device):
            with random_rounding(learner.model, self.update_index):
                rounded_P = self._plain_gradient(learner, step, minibatch, rows)
            rounding["rounding"] = float((rounded_P - plain_P).norm())
        return compare_gradients(plain_P, together_P) | {
            "rows": len(rows),
            "device": device,
            "null": float((together_P - alone_P).norm()),
            "pulled": _gradient_mass(step, minibatch, rows),
            **rounding,
        }

    def _step(self, learner: Learner, minibatch: Sequence[Sample], logprobs: Mapping[str, Tensor]) -> Step:
        """Return the minibatch as the doctor's ``Step``, with the log-probabilities of the checked rows."""
        setup = setup_of(self.session.recipe, self.stage, self.session.sampling_params)
        rows = [_token_row(sample, logprobs.get(sample.sample_id)) for sample in minibatch]
        setting = learner.setting
        coefficients = {
            "weight/kl": setting.kl.coef,
            "weight/entropy": setting.entropy.coef,
            "weight/supervised": setting.bootstrap.coef if isinstance(setting.stage, PolicyStage) else 1.0,
        }
        return step_of(self.stage, 0, setup, rows, coefficients, {}, History())

    def _plain_gradient(
        self,
        learner: Learner,
        step: Step,
        minibatch: Sequence[Sample],
        rows: Sequence[Sample],
    ) -> Tensor:
        """Return the gradient of the declared loss by a plain forward and backward of each row."""
        logprob_gradients, entropy_gradients = (
            expected_token_gradients(step),
            expected_entropy_gradients(step),
        )
        index = {sample.sample_id: i for i, sample in enumerate(minibatch)}
        for row in rows:
            start = step.starts[index[row.sample_id]]
            of_logprob_T, of_entropy_T = (
                each[start : start + len(row)] for each in (logprob_gradients, entropy_gradients)
            )
            places = ((of_logprob_T != 0) | (of_entropy_T != 0)).nonzero()[:, 0].tolist()
            if places:
                logprob_K, entropy_K = plain_logprobs(row_logits(learner.model, row), row, places)
                weights = (each[places].to(logprob_K) for each in (of_logprob_T, of_entropy_T))
                loss = -sum(((w * x).sum() for w, x in zip(weights, (logprob_K, entropy_K), strict=True)))
                loss.backward()
        return _take_gradient(learner, self.update_index)

    def _trainer_gradient(
        self,
        learner: Learner,
        minibatch: Sequence[Sample],
        parts: Sequence[list[Sample]],
    ) -> Tensor:
        """Return the trainer's own gradient of the rows, summed over parts; without the critic's term."""
        terms = [term for term in learner.algorithm.terms(learner.setting) if term.name != "value"]
        terms_with_denominator = [(term, term.denominator(minibatch)) for term in terms]
        for part in parts:
            micro = MicroBatch(part, sum(map(len, part)))
            backward(learner, micro, terms_with_denominator, Trace(0, part), "the doctor's audit")
        return _take_gradient(learner, self.update_index)


def _gradient_mass(step: Step, minibatch: Sequence[Sample], rows: Sequence[Sample]) -> float:
    """Return Σ |token gradient| of the rows: if their tokens are certain, a gradient is mere rounding."""
    index = {sample.sample_id: i for i, sample in enumerate(minibatch)}
    parts = [(step.starts[index[row.sample_id]], len(row)) for row in rows]
    gradient_N = expected_token_gradients(step).abs() + expected_entropy_gradients(step).abs()
    return sum(float(gradient_N[start : start + length].sum()) for start, length in parts)


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


def _take_gradient(learner: Learner, update_index: int) -> Tensor:
    """Return the gradient of this update's slice of weights, and clear all gradients.

    Every rank has computed the same rows, and gradients are summed over ranks.
    """
    flat_P = flat_gradient(learner.parameters, update_index) / learner.ranks.size
    learner.optimizer.zero_grad(set_to_none=True)
    return flat_P


def _token_row(sample: Sample, logprob: Tensor | None) -> SampleRow:
    """Return a row with tokens and log-probabilities only."""
    absent = torch.full((len(sample),), torch.nan)
    new = absent if logprob is None else torch.where(loss_mask(sample), logprob, torch.nan)
    return SampleRow(
        sample=sample,
        new_logprob=new,
        entropy=absent,
        raw_entropy=absent,
        token_gradient=absent,
        inner_step=0,
        text="",
        status=Status.DONE,
        reward_parts={},
        messages=(),
        outcome={},
        ended_by=EndedBy.ENVIRONMENT,
        error="",
    )
