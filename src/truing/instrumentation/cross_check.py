"""An independent look at some rows of an update before its weights move: what rules compare the trainer with.

Nothing here changes a weight, a random number or the optimiser's state.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from truing.doctor.evidence import Step
from truing.doctor.oracle.forward import plain_logprobs
from truing.doctor.oracle.token_gradients import expected_entropy_gradients, expected_token_gradients
from truing.doctor.truing_run import setup_of, step_of
from truing.instrumentation.forward_check import model_logits, plain_facts, rounding_fact
from truing.instrumentation.gradient_sum_check import compare_gradients, flat_gradient
from truing.learner.learner import Learner
from truing.learner.session import Session
from truing.learner.step import Trace, backward, loss_mask
from truing.models.digest import quick_sum
from truing.models.forward.collate import collate
from truing.models.forward.hidden_states import MicroBatch
from truing.models.forward.score import causal_model, score
from truing.models.lora import training_mode
from truing.ops.kl import kl_k3
from truing.record import SampleRow
from truing.types.sample import Sample
from truing.types.status import EndedBy, Status

MAX_TOKENS, MAX_ROWS = 512, 4
"""Rows are looked at until they have so many tokens, at least two and at most so many."""


@dataclass(frozen=True, eq=False)
class CrossCheck:
    """Looks at an update of a stage; ``turn`` decides which weights, where there are too many."""

    session: Session
    stage: str
    update_index: int

    def row_facts(self, learner: Learner, minibatch: Sequence[Sample]) -> dict[str, Any]:
        """Some rows by a plain forward and backward, beside the trainer's own."""
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
        if setup_of(self.session.recipe, self.stage).plain is not False:
            facts["gradient"] = self._gradient(learner, minibatch, rows, together)
        return facts

    def weight_facts(self, learner: Learner) -> dict[str, Any]:
        """Digests of what stands still, and one layer of the sampler's."""
        facts: dict[str, Any] = {}
        if learner.reference is not None:
            found = quick_sum(learner.reference.weights())
            facts["reference"] = {"digest": found, "declared": learner.reference.digest}
        if self.session.recipe.lora and learner.algorithm.source == "rollouts":
            facts["sync"] = _sync_facts(learner.model, self.session, self.update_index)
        return facts

    def _gradient(
        self,
        learner: Learner,
        minibatch: Sequence[Sample],
        rows: Sequence[Sample],
        logprobs: Mapping[str, Tensor],
    ) -> dict[str, Any]:
        """The trainer's gradient of some rows beside that of a plain forward and the declared loss."""
        step = self._step(learner, minibatch, logprobs)
        plain_P = self._plain_gradient(learner, step, minibatch, rows)
        theirs_P = self._trainer_gradient(learner, minibatch, [list(rows)])
        apart_P = self._trainer_gradient(learner, minibatch, [[row] for row in rows])
        return compare_gradients(plain_P, theirs_P) | {
            "rows": len(rows),
            "device": causal_model(learner.model).device.type,
            "null": float((theirs_P - apart_P).norm()),
            "pulled": _gradient_mass(step, minibatch, rows),
        }

    def _step(self, learner: Learner, minibatch: Sequence[Sample], logprobs: Mapping[str, Tensor]) -> Step:
        """The minibatch as the doctor sees it, with the log-probabilities of the rows that were looked at."""
        setup = setup_of(self.session.recipe, self.stage, self.session.sampling_params)
        rows = [_token_row(sample, logprobs.get(sample.sample_id)) for sample in minibatch]
        now = learner.setting  # weights as they are in this step
        numbers = {
            "weight/kl": now.kl.coef,
            "weight/entropy": now.entropy.coef,
            "weight/supervised": now.bootstrap.coef if learner.algorithm.source == "rollouts" else 1.0,
        }
        return step_of(self.stage, 0, setup, rows, numbers, {}, ())

    def _plain_gradient(
        self,
        learner: Learner,
        step: Step,
        minibatch: Sequence[Sample],
        rows: Sequence[Sample],
    ) -> Tensor:
        """The gradient of what the declared loss comes to, by a plain forward and backward of each row."""
        pulls, bonus = expected_token_gradients(step), expected_entropy_gradients(step)
        place = {sample.sample_id: i for i, sample in enumerate(minibatch)}
        for row in rows:
            start = step.starts[place[row.sample_id]]
            pull_T, bonus_T = (each[start : start + len(row)] for each in (pulls, bonus))
            wanted = ((pull_T != 0) | (bonus_T != 0)).nonzero()[:, 0].tolist()
            if wanted:
                logprob_K, entropy_K = plain_logprobs(model_logits(learner.model), row, wanted)
                weights = (each[wanted].to(logprob_K) for each in (pull_T, bonus_T))
                loss = -sum(((w * x).sum() for w, x in zip(weights, (logprob_K, entropy_K), strict=True)))
                loss.backward()
        return _take_gradient(learner, self.update_index)

    def _trainer_gradient(
        self,
        learner: Learner,
        minibatch: Sequence[Sample],
        parts: Sequence[list[Sample]],
    ) -> Tensor:
        """The gradient of the same rows as the trainer computes it, part by part; the critic's term aside."""
        terms = [term for term in learner.algorithm.terms(learner.setting) if term.name != "value"]
        divided = [(term, term.denominator(minibatch)) for term in terms]
        for part in parts:
            micro = MicroBatch(part, sum(map(len, part)))
            backward(learner, micro, divided, Trace(0, part), "the doctor's look")
        return _take_gradient(learner, self.update_index)


def _gradient_mass(step: Step, minibatch: Sequence[Sample], rows: Sequence[Sample]) -> float:
    """Σ |pull| of the rows: where their tokens are certain, a gradient is rounding beside it."""
    place = {sample.sample_id: i for i, sample in enumerate(minibatch)}
    parts = [(step.starts[place[row.sample_id]], len(row)) for row in rows]
    pull_N = expected_token_gradients(step).abs() + expected_entropy_gradients(step).abs()
    return sum(float(pull_N[start : start + length].sum()) for start, length in parts)


def rows_to_check(minibatch: Sequence[Sample]) -> list[Sample]:
    """Rows to look at: those that pull first, each time others."""
    scored = [sample for sample in minibatch if loss_mask(sample).any()]
    pulling = [row for row in scored if bool((row.advantage.nan_to_num() != 0).any())]
    rows: list[Sample] = []
    for row in [*pulling, *(row for row in scored if row not in pulling)]:
        if len(rows) >= 2 and (len(rows) == MAX_ROWS or sum(map(len, rows)) + len(row) > MAX_TOKENS):
            break
        rows.append(row)
    return rows


def null_facts(
    rows: Sequence[Sample], together: Mapping[str, Tensor], alone: Mapping[str, Tensor]
) -> dict[str, float]:
    """How far the trainer is from itself: largest difference, nats, and mean k3, over the trained tokens.

    ``together`` and ``alone`` are its log-probabilities by sample, [T], of rows that train some token.
    """
    together_K, alone_K = (
        torch.cat([said[row.sample_id][loss_mask(row)] for row in rows]).double()
        for said in (together, alone)
    )
    possible_K = torch.isfinite(together_K) & torch.isfinite(alone_K)  # a stop that is banned has −∞ in both
    together_k, alone_k = together_K[possible_K], alone_K[possible_K]
    if not len(together_k):
        return {"logprob": 0.0, "k3": 0.0}
    return {
        "logprob": float((together_k - alone_k).abs().max()),
        "k3": float(kl_k3(alone_k, together_k).mean()),
    }


@torch.no_grad()
def _scores(learner: Learner, parts: Iterable[Sequence[Sample]]) -> dict[str, Tensor]:
    """The trainer's own log-probabilities, part by part: [T] by sample."""
    found = {}
    for part in parts:
        batch = collate(part)
        logprob_BT = score(learner.model, batch, loss_mask(batch)).logprob.cpu()
        found |= {row.sample_id: logprob_BT[b, : len(row)] for b, row in enumerate(part)}
    return found


def _take_gradient(learner: Learner, turn: int) -> Tensor:
    """The gradient of the weights whose turn it is; then there is none."""
    flat_P = flat_gradient(learner.parameters, turn)
    learner.optimizer.zero_grad(set_to_none=True)
    return flat_P


def _sync_facts(policy: nn.Module, session: Session, turn: int) -> dict[str, Any]:
    """One layer of the sampler beside base + adapter, and how many other weights are not the policy's own."""
    layers = {
        name: module for name, module in causal_model(policy).named_modules() if hasattr(module, "lora_A")
    }
    name = sorted(layers)[turn % len(layers)]
    layer: Any = layers[name]
    lora = session.recipe.lora
    assert lora
    down, up = (part["default"].weight.detach().double() for part in (layer.lora_A, layer.lora_B))
    base = layer.get_base_layer().weight.detach()
    expected = base.double() + lora.alpha / lora.rank * (up @ down)
    got = session.sampler.model.get_submodule(name).weight.detach()
    return {
        "layer": name,
        "largest": float((got.double() - expected).abs().max()),
        "scale": float(expected.abs().max()),
        "eps": torch.finfo(got.dtype).eps,
    }


def _token_row(sample: Sample, logprob: Tensor | None) -> SampleRow:
    """A row of which nothing but its tokens is known."""
    absent = torch.full((len(sample),), torch.nan)
    new = absent if logprob is None else torch.where(loss_mask(sample), logprob, torch.nan)
    return SampleRow(
        sample=sample,
        new_logprob=new,
        entropy=absent,
        raw_entropy=absent,
        pull=absent,
        inner_step=0,
        text="",
        status=Status.DONE,
        reward_parts={},
        messages=(),
        outcome={},
        ended_by=EndedBy.ENVIRONMENT,
        error="",
    )
