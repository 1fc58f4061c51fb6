"""The gradient that another trainer's optimiser gets, beside what a plain backward of each row makes."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from truing.doctor.evidence import Step
from truing.doctor.oracle.forward import plain_logprobs
from truing.instrumentation.gradient_sum_check import FREE, beside, flat_gradient, pull_of, silent
from truing.instrumentation.missing_gradients import unheard
from truing.instrumentation.update_facts import spot
from truing.integrations.trl.forward_check import chosen, logprobs, own_logits, sample_of
from truing.models.forward.rounding_noise import machine, rounded_at_random
from truing.types.sampling_params import SamplingContract


def arrival_facts(
    model: Any,
    step: Step,
    contract: SamplingContract,
    parameters: Mapping[str, Tensor],
    turn: int,
    *,
    clipped: float,
) -> dict[str, Any]:
    """The gradient that the optimiser gets beside the rows' own: each pulled by a plain forward alone.

    Args:
        model: the policy, without the trainer's wrappers.
        step: whose rows, with how hard the trainer's own loss pulled at each log-probability.
        contract: under which the trainer says that it scores.
        parameters: what is trained, with the gradient that the optimiser gets.
        turn: which weights are compared, where there are too many.
        clipped: what the clip made of the gradient's length, in (0, 1].

    ``rounding`` is how far the rows' own sum is from itself rounded at random, where it is not computed in
    float32.
    """
    device, weights = machine(model), {n: parameters[n] for n in parameters if n in spot(parameters, turn)}

    def flat(sums: Mapping[str, Tensor]) -> Tensor:
        # others keep their place, so that the same part of them is taken
        whole = spot(dict(parameters) | {name: clipped * sum_ for name, sum_ in sums.items()}, turn)
        return torch.cat([each.detach().reshape(-1).double().cpu() for each in whole.values()])

    total = {name: torch.zeros_like(weight, dtype=torch.float32) for name, weight in weights.items()}
    for index in range(len(step.rows)):
        _add_gradient(total, model, step, index, contract, weights)
    expected_P = flat(total)
    about: dict[str, Any] = pull_of(clipped * step.tokens["pull"], step.tokens["new_logprob"])
    if device != "cpu":
        # added up in the precision of weights, as a trainer adds micro-batches up
        again = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        for index in range(len(step.rows)):
            with rounded_at_random(model, index):
                _add_gradient(again, model, step, index, contract, weights)
        about["rounding"] = float((flat(again) - expected_P).norm())
    if about["free"] > FREE:
        idle = [name for name, sum_ in total.items() if silent(sum_)]
        about["unheard"] = _unheard(model, step, contract, parameters, idle)
    counted = {"rows": len(step.rows), "device": device}
    return beside(expected_P, flat_gradient(parameters, turn)) | counted | about


def _add_gradient(
    sums: Mapping[str, Tensor],
    model: Any,
    step: Step,
    index: int,
    contract: SamplingContract,
    weights: Mapping[str, Tensor],
) -> None:
    """Add what a row's tokens make of weights, each pulled as the trainer's own loss pulled at it."""
    _, part, sample = sample_of(step, index, contract)
    pull_T = step.tokens["pull"][part].nan_to_num()
    wanted = pull_T.nonzero()[:, 0].tolist()
    if not wanted:
        return
    logprob_K = plain_logprobs(own_logits(model), sample, wanted)[0]
    loss = -(pull_T[wanted].to(logprob_K) * logprob_K).sum()
    made = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    for sum_, own in zip(sums.values(), made, strict=True):
        if own is not None:
            sum_ += own


def _unheard(
    model: Any, step: Step, contract: SamplingContract, parameters: Mapping[str, Tensor], idle: Sequence[str]
) -> dict[str, Any]:
    """Which weights without a gradient some rows depend on."""
    asked: list[tuple[Any, list[int]]] = []
    pulls = [torch.zeros(0, dtype=torch.float64)]
    for index, _ in chosen(step):
        _, part, sample = sample_of(step, index, contract)
        pull_T = step.tokens["pull"][part].double().nan_to_num()
        wanted = pull_T.nonzero()[:, 0].tolist()
        if wanted:
            asked.append((sample, wanted))
            pulls.append(pull_T[wanted])

    def said() -> Tensor:
        return torch.cat([logprobs(model, sample, wanted) for sample, wanted in asked])

    return unheard(parameters, idle, said, torch.cat(pulls))
