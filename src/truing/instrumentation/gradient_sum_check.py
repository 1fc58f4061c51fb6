"""Check that the optimizer's gradient is the sum over the rows of the update.

Before the update, the trainer's own loss runs backward on smaller micro-batches; later the optimizer's
gradient is compared with their sum. A gradient that is lost, counted twice, cleared or negated on its way to
the optimizer shows as a difference.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from truing.instrumentation.gradient_comparison import (
    MIN_GRADIENT_MASS,
    attention_rounding,
    compare_gradients,
    flat_gradient,
    gradient_mass,
    is_missing,
)
from truing.instrumentation.weights_without_gradient import LogprobFn, missing_gradient
from truing.learner.learner import Learner
from truing.learner.optimizer import gradient_norm
from truing.learner.optimizer_step import OptimizerStep, loss_mask
from truing.learner.step import backward
from truing.models.forward.collate import collate
from truing.models.forward.hidden_states import MicroBatch
from truing.models.forward.rounding_noise import is_coarse, random_rounding
from truing.models.forward.score import computed_precision, score
from truing.models.forward.tree_attention import largest_scores
from truing.models.lora import training_mode
from truing.types.sample import Sample
from truing.utils.phase_clock import phase

MAX_ROWS = 4
"""Rows that test for missing gradients."""


def check_gradient_sum(
    learner: Learner, minibatch: Sequence[Sample], update_index: int, facts: dict[str, Any]
) -> tuple[RemovableHandle, int]:
    """Sum the rows' gradients now; a hook adds the fact ``row_gradients`` when the optimizer steps.

    The recipe declares no dropout: without any, its noise is neither in the sum nor in what rounding changes.

    Args:
        learner: before the update; its gradients are None before and after this call.
        minibatch: of the first update of a step.
        update_index: selects the compared weights, if there are too many.
        facts: of the step.

    Returns:
        The handle of the hook, and the tokens that were computed.
    """
    learner.model.eval()
    try:
        fact, expected_P, tokens = _gradient_sum(learner, minibatch, update_index)
    finally:
        training_mode(learner.model)
        learner.optimizer.zero_grad(set_to_none=True)
    expected = [expected_P]

    @phase("doctor")
    def compare(*_: object) -> None:
        if expected:  # only at the first step: a hook cannot remove itself while hooks are called
            facts["row_gradients"] = fact | compare_gradients(
                expected.pop(), flat_gradient(learner.parameters, update_index)
            )

    return learner.optimizer.register_step_pre_hook(compare), tokens


def _gradient_sum(
    learner: Learner, minibatch: Sequence[Sample], update_index: int
) -> tuple[dict[str, Any], Tensor, int]:
    """Return facts on the sum of the rows' gradients, the sum of this update's weights, and tokens computed.

    The sum is [P] float64.
    """
    terms = learner.algorithm.terms(learner.setting)
    trained = [row for row in minibatch if any(term.has_gradient(row) for term in terms)]
    as_trained = list(learner.memory_budget.micro_batches(learner.model, trained))
    smaller, rows = _smaller(learner, trained, as_trained), OptimizerStep(0, minibatch)
    device, rounded_P = computed_precision(learner.model), None
    computed = [*smaller, *(as_trained if is_coarse(device) else [])]
    if is_coarse(device):
        with random_rounding(learner.model, update_index):
            # in the trainer's micro-batches: where rows share a prefix they share its rounding too
            _add_gradients(learner, minibatch, as_trained, OptimizerStep(0, minibatch))
        rounded_P = flat_gradient(learner.parameters, update_index) / learner.ranks.size
        learner.optimizer.zero_grad(set_to_none=True)
    with largest_scores() as scores:
        _add_gradients(learner, minibatch, smaller, rows)
    norm = float(gradient_norm(learner.parameters)) / learner.ranks.size
    clipped = min(1.0, learner.optimizer_cfg.max_grad_norm / norm) if norm else 1.0
    expected_P = clipped * flat_gradient(learner.parameters, update_index) / learner.ranks.size
    without_gradient = [name for name, weight in learner.parameters.items() if is_missing(weight.grad)]
    learner.optimizer.zero_grad(set_to_none=True)
    fact = _mass_of(rows, clipped) | {"rows": len(rows.computed), "device": device}
    if rounded_P is None:
        fact |= attention_rounding(scores, expected_P)
    else:
        fact["rounding"] = float((clipped * rounded_P - expected_P).norm())
    tested = rows.computed[:MAX_ROWS]
    if tested and fact["free"] > MIN_GRADIENT_MASS:
        fact["missing_gradient"] = _missing(learner, without_gradient, tested, rows)
    return fact, expected_P, sum(micro.tokens for micro in computed)


def _mass_of(rows: OptimizerStep, clipped: float) -> dict[str, Any]:
    """Return ``gradient_mass`` of all computed tokens, whose gradients are clipped by a factor."""
    token_gradient_N, logprob_N = (
        torch.cat([torch.zeros(0), *(rows.stream(name, row) for row in rows.computed)])
        for name in ("token_gradient", "new_logprob")
    )
    return gradient_mass(clipped * token_gradient_N, logprob_N)


def _missing(
    learner: Learner, names: Sequence[str], tested: Sequence[Sample], rows: OptimizerStep
) -> dict[str, Any]:
    """Return the fact on weights ``names``, which have no gradient: whether rows depend on them."""
    token_gradient_K = torch.cat(
        [rows.stream("token_gradient", row)[_has_gradient(rows, row)] for row in tested]
    )
    return missing_gradient(
        learner.parameters,
        names,
        lambda: _row_logprobs(learner, tested, rows),
        token_gradient_K,
        _rounded_logprobs(learner, tested, rows),
        coarse=is_coarse(computed_precision(learner.model)),
    )


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


def backward_sum_facts(
    learner: Learner, steps: Sequence[OptimizerStep], *, test_missing: bool
) -> dict[str, Any]:
    """Return the fact ``backward_sums``: those sums compared with the gradient of each optimizer step.

    Args:
        learner: after the update.
        steps: the optimizer steps.
        test_missing: whether to test if the loss depends on weights that a pass gave no gradient.
    """
    stepped = [each for each in steps if each.sum_checks]
    checks = [fact for each in stepped for calls in each.sum_checks for fact in calls]
    if not checks:
        return {}
    worst = max(checks, key=lambda fact: (fact["count"], len(fact["foreign"]), fact["relative"]))
    fact = {name: worst[name] for name in ("weights", "wrong", "count", "relative", "foreign")}
    calls = [len(each.sum_checks[0]) for each in stepped]
    last = [calls[-1]["factor"] if calls else None for calls in stepped[-1].sum_checks]
    fact |= {"steps": len(stepped), "calls": sum(calls), "factor": last[0], "ranks": learner.ranks.size}
    fact |= {"critic_factor": last[1]} if len(last) > 1 else {}
    silent = next((each for each in stepped if each.sum_checks[0] and each.sum_checks[0][0]["missed"]), None)
    if silent is None:
        return {"backward_sums": fact}
    missed = silent.sum_checks[0][0]["missed"]
    fact |= {"silent": sorted(missed)[:3], "silent_count": len(missed)}
    fact |= {"missing_gradient": _missing_gradient_of(learner, silent, missed) if test_missing else {}}
    return {"backward_sums": fact}


def _missing_gradient_of(learner: Learner, step: OptimizerStep, missed: Mapping[str, int]) -> dict[str, Any]:
    """Return the weight without a gradient from a pass that the pass's rows depend on most; empty if none."""
    first_pass = min(missed.values())
    names = [name for name, first in missed.items() if first == first_pass]
    computed = [
        row for micro in step.micro_batches[first_pass] if not micro.is_padding for row in micro.samples
    ]
    rows = [row for row in computed if bool(_has_gradient(step, row).any())][:MAX_ROWS]
    if not rows:
        return {}
    token_gradient_K, logprob_K = (
        torch.cat([step.stream(name, row)[_has_gradient(step, row)] for row in rows])
        for name in ("token_gradient", "new_logprob")
    )
    if gradient_mass(token_gradient_K, logprob_K)["free"] <= MIN_GRADIENT_MASS:
        return {}
    learner.model.eval()
    try:
        return _missing(learner, names, rows, step)
    finally:
        training_mode(learner.model)


def _has_gradient(step: OptimizerStep, row: Sample) -> Tensor:
    """Return the tokens of a row with a gradient: [T] bool; none if no backward pass had the row."""
    return loss_mask(row) & (step.stream("token_gradient", row).nan_to_num() != 0)


@torch.no_grad()
def _row_logprobs(learner: Learner, rows: Sequence[Sample], step: OptimizerStep) -> Tensor:
    """Return the log-probabilities of the tokens with a gradient: [K]."""
    batch = collate(rows)
    logprob_BT = score(learner.model, batch, loss_mask(batch)).logprob.cpu()
    return torch.cat([logprob_BT[b, : len(row)][_has_gradient(step, row)] for b, row in enumerate(rows)])


def _rounded_logprobs(learner: Learner, rows: Sequence[Sample], step: OptimizerStep) -> LogprobFn:
    """Return a function that computes the same under random rounding, another one at each call."""
    seeds = count()

    def rounded() -> Tensor:
        with random_rounding(learner.model, next(seeds)):
            return _row_logprobs(learner, rows, step)

    return rounded
