"""The gradient of some rows by a plain forward and backward, compared with the trainer's.

It runs before the optimizer steps and changes no weight, no RNG state and no optimizer state.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from truing.algos import LossTerm
from truing.config import PolicyStage, Recipe
from truing.doctor.evidence import Setup, Step
from truing.doctor.history import History
from truing.doctor.oracle.forward import plain_logprobs
from truing.doctor.oracle.token_gradients import (
    expected_entropy_gradients,
    expected_token_gradients,
    expected_value_gradients,
)
from truing.doctor.rules.opt006 import MEASURED, differ
from truing.doctor.truing_run import setup_of
from truing.learner.learner import Learner
from truing.learner.optimizer_step import OptimizerStep
from truing.learner.step import backward
from truing.measurements.checked_rows import alternating, checked_rows, without_dropout
from truing.measurements.gradient_comparison import attention_rounding, compare_gradients, flat_gradient
from truing.measurements.measurement import Measurement
from truing.measurements.plain_values import states_before, values_of
from truing.measurements.row_logits import row_logits
from truing.models.forward.hidden_states import MicroBatch
from truing.models.forward.rounding_noise import is_coarse, random_rounding
from truing.models.forward.score import computed_precision
from truing.models.forward.tree_attention import largest_scores
from truing.types.passes import Passes
from truing.types.sample import Sample
from truing.types.sampling_params import SamplingParams
from truing.types.step_table import StepNumbers, table_of_samples
from truing.types.weight_facts import Compared, Gradients, PlainGradient


class PlainBackward(Measurement):
    """The gradient of some rows by the loss's closed form and a plain backward, beside the trainer's."""

    facts = ("gradient",)
    cost = "some three forwards and backwards of 1 to 4 rows, up to 512 tokens or one row"
    audit = "row_gradient"

    def before_optimizer_steps(self, minibatch: Sequence[Sample]) -> None:
        """Compute the rows; not where settings without a closed form re-weight tokens."""
        step = self.step
        rows, minibatch = checked_rows(step, minibatch), alternating(step.learner.shares(minibatch))
        if rows and setup_of(step.recipe, step.stage).plain is not False:
            with without_dropout(step.learner):
                params, index = step.sampler.sampling_params, step.step_index
                check = GradientOfRows(step.recipe, params, step.stage, index, step.learner, minibatch, rows)
                self.found = {"gradient": check.fact()}


@dataclass(frozen=True, eq=False)
class GradientOfRows:
    """The comparison for some rows of a minibatch; ``step_index`` selects the weights, if too many."""

    recipe: Recipe
    sampling_params: SamplingParams
    stage: str
    step_index: int
    learner: Learner
    minibatch: Sequence[Sample]
    rows: Sequence[Sample]

    def fact(self) -> PlainGradient:
        """Return the fact ``gradient``; what rounding does to it is measured if the two differ.

        The value loss has a gradient of its own there: beside the policy's it would be too small to show.
        """
        terms = self.learner.algorithm.terms(self.learner.setting)
        of_policy = [term for term in terms if term.name != "value"]
        with largest_scores() as scores:
            together_P, scored = self._trainer_gradient([list(self.rows)], of_policy)
        step = self._step(scored)
        pulled = _gradient_mass(step, self.minibatch, self.rows)
        plain_P = self._plain_gradient(step)
        fact: PlainGradient = {**self._beside(plain_P, together_P), "pulled": pulled, "null": 0.0}
        attention = None if is_coarse(fact["device"]) else attention_rounding(scores, plain_P)
        if attention is not None:
            fact["attention"] = attention
        self._add_noise(fact, plain_P, together_P, of_policy, lambda: self._plain_gradient(step))
        of_values = [term for term in terms if term.name == "value"]
        if self.learner.critic is not None and of_values:
            fact["values"] = self._values(step.setup, of_values)
        return fact

    def _values(self, setup: Setup, terms: Sequence[LossTerm]) -> Gradients:
        """Return the comparison of the value loss's own gradient."""
        together_P, _ = self._trainer_gradient([list(self.rows)], terms)
        plain_P, pulled = self._plain_value_gradient(setup)
        fact: PlainGradient = {**self._beside(plain_P, together_P), "pulled": pulled, "null": 0.0}
        self._add_noise(fact, plain_P, together_P, terms, lambda: self._plain_value_gradient(setup)[0])
        return fact

    def _beside(self, plain_P: Tensor, trainer_P: Tensor) -> Compared:
        rows, device = len(self.rows), computed_precision(self.learner.model)
        return {**compare_gradients(plain_P, trainer_P), "rows": rows, "device": device}

    def _add_noise(
        self,
        fact: PlainGradient,
        plain_P: Tensor,
        together_P: Tensor,
        terms: Sequence[LossTerm],
        plain: Callable[[], Tensor],
    ) -> None:
        """Measure what other micro-batches and random rounding change, if the two gradients differ."""
        if differ(fact, MEASURED):
            alone_P, _ = self._trainer_gradient([[row] for row in self.rows], terms)
            fact["null"] = float((together_P - alone_P).norm())
            if is_coarse(fact["device"]):
                with random_rounding(self.learner.model, self.step_index):
                    fact["rounding"] = float((plain() - plain_P).norm())

    def _step(self, scored: OptimizerStep) -> Step:
        """Return the minibatch as the doctor reads it, with the log-probabilities of the checked rows."""
        setup = setup_of(self.recipe, self.stage, self.sampling_params)
        setting = self.learner.setting
        coefficients = {
            "weight/kl": setting.kl.coef,
            "weight/entropy": setting.entropy.coef,
            "weight/supervised": setting.bootstrap.coef if isinstance(setting.stage, PolicyStage) else 1.0,
        }
        checked = {row.sample_id for row in self.rows}
        logprob_N = torch.cat(
            [
                scored.stream("new_logprob", sample)
                if sample.sample_id in checked
                else torch.full((len(sample),), torch.nan)
                for sample in self.minibatch
            ]
        )
        passes = Passes.one_each(len(self.minibatch), {"new_logprob": logprob_N})
        table = table_of_samples(StepNumbers(self.stage, 0, coefficients), self.minibatch, passes)
        return Step.of(table, setup, History())

    def _plain_gradient(self, step: Step) -> Tensor:
        """Return the gradient of the declared loss by a plain forward and backward of each row."""
        logprob_gradients, entropy_gradients = (
            expected_token_gradients(step),
            expected_entropy_gradients(step),
        )
        index = {sample.sample_id: i for i, sample in enumerate(self.minibatch)}
        for row in self.rows:
            start = step.starts[index[row.sample_id]]
            of_logprob_T, of_entropy_T = (
                each[start : start + len(row)] for each in (logprob_gradients, entropy_gradients)
            )
            places = ((of_logprob_T != 0) | (of_entropy_T != 0)).nonzero()[:, 0].tolist()
            if places:
                logprob_K, entropy_K = plain_logprobs(row_logits(self.learner.model, row), row, places)
                of_logprob_K = of_logprob_T[places].to(logprob_K)
                of_entropy_K = of_entropy_T[places].to(logprob_K)
                loss = -((of_logprob_K * logprob_K).sum() + (of_entropy_K * entropy_K).sum())
                loss.backward()
        return self._take_gradient()

    def _plain_value_gradient(self, setup: Setup) -> tuple[Tensor, float]:
        """Return the gradient of the declared value loss, and Σ |gradient per value| of the rows."""
        assert setup.value_coef is not None
        tokens, pulled = sum(int(sample.value_mask.sum()) for sample in self.minibatch), 0.0
        for row in self.rows:
            if places := row.value_mask.nonzero()[:, 0].tolist():
                value_K = values_of(self.learner, states_before(self.learner, row, places))
                old_K, returns_K = row.value[places].to(value_K), row.returns[places].to(value_K)
                mask_K = torch.ones_like(value_K, dtype=torch.bool)
                of_value_K = expected_value_gradients(
                    value_K.detach(), old_K, returns_K, mask_K, setup.value_coef, setup.value_clip
                ).nan_to_num() * (len(places) / tokens)
                pulled += float(of_value_K.abs().sum())
                (-of_value_K.to(value_K) * value_K).sum().backward()
        return self._take_gradient(), pulled

    def _trainer_gradient(
        self, parts: Sequence[list[Sample]], terms: Sequence[LossTerm]
    ) -> tuple[Tensor, OptimizerStep]:
        """Return the trainer's own gradient of the rows by some terms, summed over parts."""
        learner, scored = self.learner, OptimizerStep(0, self.rows)
        terms_with_denominator = [(term, term.denominator(self.minibatch)) for term in terms]
        for part in parts:
            micro = MicroBatch(part, sum(map(len, part)))
            backward(learner, micro, terms_with_denominator, scored, "the doctor's audit")
        return self._take_gradient(), scored

    def _take_gradient(self) -> Tensor:
        """Return the gradient of this step's slice of weights, and clear all gradients.

        Every rank has computed the same rows, and gradients are summed over ranks.
        """
        every = {name: each for group in self.learner.parameter_groups() for name, each in group.items()}
        flat_P = flat_gradient(every, self.step_index) / self.learner.ranks.size
        self.learner.optimizer.zero_grad(set_to_none=True)
        return flat_P


def _gradient_mass(step: Step, minibatch: Sequence[Sample], rows: Sequence[Sample]) -> float:
    """Return Σ |token gradient| of the rows: if their tokens are certain, a gradient is mere rounding."""
    index = {sample.sample_id: i for i, sample in enumerate(minibatch)}
    parts = [(step.starts[index[row.sample_id]], len(row)) for row in rows]
    gradient_N = expected_token_gradients(step).abs() + expected_entropy_gradients(step).abs()
    return sum(float(gradient_N[start : start + length].sum()) for start, length in parts)
