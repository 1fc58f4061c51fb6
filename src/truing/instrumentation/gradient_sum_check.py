"""Whether the gradient that the optimiser gets is the sum over the rows of the update.

A few rows at a time go backward, as the trainer's own loss has it, before the update is computed; what the
optimiser is handed then is compared with their sum. Whatever is lost, counted twice, cleared or turned
between a backward pass and the weights shows as a difference.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from truing.instrumentation.missing_gradients import missing_gradient
from truing.instrumentation.update_facts import rotating_slice
from truing.learner.learner import Learner
from truing.learner.step import Trace, backward, loss_mask
from truing.models.forward.collate import collate
from truing.models.forward.score import causal_model, score
from truing.models.lora import training_mode
from truing.types.sample import Sample

MIN_GRADIENT_MASS = 1e-3
"""Sum of what pulls at tokens that are not certain: beside less of it no weight is asked why it has no
gradient."""

MAX_TOKENS, MAX_ROWS = 512, 4
"""Of rows that go backward together, in other micro-batches; and rows that weights are asked by."""


def check_gradient_sum(
    learner: Learner, minibatch: Sequence[Sample], update_index: int, facts: dict[str, Any]
) -> RemovableHandle:
    """Add up the rows' gradients now; the fact ``arrival`` is there once the optimiser was called.

    Args:
        learner: as it is before the update; it has no gradient, before and after.
        minibatch: of the first update of a step.
        turn: which weights are compared, where there are too many.
        facts: of the step.
    """
    rows = Trace(0, list(minibatch))
    terms = learner.algorithm.terms(learner.setting)
    divided = [(term, term.denominator(minibatch)) for term in terms]
    for few in _row_batches([row for row in minibatch if any(term.has_gradient(row) for term in terms)]):
        for micro in learner.memory_budget.micro_batches(learner.model, few):
            backward(learner, micro, divided, rows, "the doctor's look")
    gradients = [weight.grad for weight in learner.parameters.values() if weight.grad is not None]
    norm = float(torch.nn.utils.get_total_norm(gradients))
    clipped = min(1.0, learner.optimizer_cfg.max_grad_norm / norm) if norm else 1.0
    expected_P = clipped * flat_gradient(learner.parameters, update_index)
    idle = [name for name, weight in learner.parameters.items() if is_missing(weight.grad)]
    learner.optimizer.zero_grad(set_to_none=True)
    nothing = [torch.zeros(0)]
    pull_N = clipped * torch.cat([*nothing, *rows.token_gradient.values()])
    logprob_N = torch.cat([*nothing, *(rows.logprob[name] for name in rows.token_gradient)])
    about: dict[str, Any] = gradient_mass(pull_N, logprob_N) | {
        "rows": len(rows.token_gradient),
        "device": causal_model(learner.model).device.type,
    }
    asked = [row for row in minibatch if row.sample_id in rows.token_gradient][:MAX_ROWS]
    if asked and about["free"] > MIN_GRADIENT_MASS:
        pull_K = torch.cat([rows.token_gradient[row.sample_id][_has_gradient(rows, row)] for row in asked])
        about["unheard"] = missing_gradient(
            learner.parameters, idle, lambda: _row_logprobs(learner, asked, rows), pull_K
        )

    awaited = [expected_P]

    def compare(*_: object) -> None:
        if awaited:  # at the first step; a hook cannot remove itself while others are to be called
            facts["arrival"] = about | compare_gradients(
                awaited.pop(), flat_gradient(learner.parameters, update_index)
            )

    return learner.optimizer.register_step_pre_hook(compare)


def backward_sum_facts(learner: Learner, traces: Sequence[Trace], *, test_missing: bool) -> dict[str, Any]:
    """What backward passes handed over beside what the optimiser got, over all steps of an update.

    Args:
        learner: as the update left it.
        traces: of the inner steps.
        ask: whether weights that a pass gave nothing are asked if the loss depends on them.
    """
    stepped = [trace for trace in traces if trace.sum_checks]
    found = [fact for trace in stepped for calls in trace.sum_checks for fact in calls]
    if not found:
        return {}
    worst = max(found, key=lambda fact: (fact["count"], len(fact["foreign"]), fact["relative"]))
    told = {name: worst[name] for name in ("weights", "wrong", "count", "relative", "foreign")}
    calls = [len(trace.sum_checks[0]) for trace in stepped]
    last = stepped[-1].sum_checks[0]
    told |= {"steps": len(stepped), "calls": sum(calls), "factor": last[-1]["factor"] if last else None}
    silent = next(
        (trace for trace in stepped if trace.sum_checks[0] and trace.sum_checks[0][0]["missed"]), None
    )
    if silent is None:
        return {"handed": told}
    missed = silent.sum_checks[0][0]["missed"]
    about = {"silent": sorted(missed)[:3], "silent_count": len(missed)}
    return {
        "handed": told
        | about
        | {"unheard": _missing_gradient_of(learner, silent, missed) if test_missing else {}}
    }


def _missing_gradient_of(learner: Learner, trace: Trace, missed: Mapping[str, int]) -> dict[str, Any]:
    """The weight that a pass gave nothing and its rows depend on most; empty where there is none."""
    turn = min(missed.values())
    names = [name for name, first in missed.items() if first == turn]
    rows = [row for row in trace.micro_batches[turn].samples if bool(_has_gradient(trace, row).any())][
        :MAX_ROWS
    ]
    if not rows:
        return {}
    pull_K, logprob_K = (
        torch.cat([stream[row.sample_id][_has_gradient(trace, row)] for row in rows])
        for stream in (trace.token_gradient, trace.logprob)
    )
    if gradient_mass(pull_K, logprob_K)["free"] <= MIN_GRADIENT_MASS:
        return {}
    learner.model.eval()
    try:
        return missing_gradient(
            learner.parameters, names, lambda: _row_logprobs(learner, rows, trace), pull_K
        )
    finally:
        training_mode(learner.model)


def _has_gradient(trace: Trace, row: Sample) -> Tensor:
    """Tokens of a row that are pulled: [T] bool."""
    return loss_mask(row) & (trace.token_gradient[row.sample_id].nan_to_num() != 0)


@torch.no_grad()
def _row_logprobs(learner: Learner, rows: Sequence[Sample], trace: Trace) -> Tensor:
    """Log-probabilities of the tokens of rows that are pulled: [K]."""
    batch = collate(rows)
    logprob_BT = score(learner.model, batch, loss_mask(batch)).logprob.cpu()
    said = [logprob_BT[b, : len(row)][_has_gradient(trace, row)] for b, row in enumerate(rows)]
    return torch.cat(said)


def is_missing(gradient: Tensor | None) -> bool:
    """Whether there is none, or 0 throughout."""
    return gradient is None or not bool(gradient.any())


def gradient_mass(token_gradient_N: Tensor, logprob_N: Tensor) -> dict[str, float]:
    """How hard tokens are pulled altogether, and how hard those that can still move: Σ |pull| (1 − p)."""
    size_N = token_gradient_N.nan_to_num().abs()
    free_N = -torch.expm1(logprob_N.nan_to_num().clamp(max=0.0))
    return {"pulled": float(size_N.sum()), "free": float((size_N * free_N).sum())}


def _row_batches(rows: Sequence[Sample]) -> Iterator[list[Sample]]:
    """Rows in their order, so many together that they have ``TOKENS`` tokens at most, or alone."""
    few: list[Sample] = []
    for row in rows:
        if few and sum(map(len, few)) + len(row) > MAX_TOKENS:
            yield few
            few = []
        few.append(row)
    if few:
        yield few


def flat_gradient(parameters: Mapping[str, Tensor], update_index: int) -> Tensor:
    """The gradient of the weights whose turn it is, as one vector [P] float64 on the CPU; 0 where none is."""
    gradients = {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad
        for name, weight in parameters.items()
    }
    return torch.cat(
        [part.reshape(-1).double().cpu() for part in rotating_slice(gradients, update_index).values()]
    )


def compare_gradients(plain_P: Tensor, theirs_P: Tensor) -> dict[str, float]:
    """Two gradients of the same weights: their lengths, that of their difference, and their angle."""
    norm, length = float(plain_P.norm()), float(theirs_P.norm())
    found = {"norm": norm, "trainer": length, "difference": float((theirs_P - plain_P).norm())}
    return found | ({"cosine": float(plain_P @ theirs_P) / (norm * length)} if norm and length else {})
