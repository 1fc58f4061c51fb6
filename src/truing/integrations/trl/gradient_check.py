"""The gradient that another trainer's optimiser gets, beside what a plain backward of each row makes."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from truing.doctor.evidence import Step
from truing.doctor.oracle.forward import plain_logprobs
from truing.instrumentation.gradient_sum_check import (
    MIN_GRADIENT_MASS,
    compare_gradients,
    flat_gradient,
    gradient_mass,
    is_missing,
)
from truing.instrumentation.missing_gradients import missing_gradient
from truing.instrumentation.update_facts import rotating_slice
from truing.integrations.trl.forward_check import logprobs, model_logits, rows_to_check, sample_of
from truing.models.forward.rounding_noise import device_and_precision, random_rounding
from truing.types.sampling_params import SamplingParams


def gradient_sum_facts(
    model: Any,
    step: Step,
    sampling_params: SamplingParams,
    parameters: Mapping[str, Tensor],
    update_index: int,
    *,
    clip_factor: float,
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
    device, weights = (
        device_and_precision(model),
        {n: parameters[n] for n in parameters if n in rotating_slice(parameters, update_index)},
    )

    def flat(sums: Mapping[str, Tensor]) -> Tensor:
        # others keep their place, so that the same part of them is taken
        whole = rotating_slice(
            dict(parameters) | {name: clip_factor * sum_ for name, sum_ in sums.items()}, update_index
        )
        return torch.cat([each.detach().reshape(-1).double().cpu() for each in whole.values()])

    total = {name: torch.zeros_like(weight, dtype=torch.float32) for name, weight in weights.items()}
    for index in range(len(step.rows)):
        _add_gradient(total, model, step, index, sampling_params, weights)
    expected_P = flat(total)
    about: dict[str, Any] = gradient_mass(clip_factor * step.tokens["pull"], step.tokens["new_logprob"])
    if device != "cpu":
        # added up in the precision of weights, as a trainer adds micro-batches up
        again = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        for index in range(len(step.rows)):
            with random_rounding(model, index):
                _add_gradient(again, model, step, index, sampling_params, weights)
        about["rounding"] = float((flat(again) - expected_P).norm())
    if about["free"] > MIN_GRADIENT_MASS:
        idle = [name for name, sum_ in total.items() if is_missing(sum_)]
        about["unheard"] = _missing_gradient(model, step, sampling_params, parameters, idle)
    counted = {"rows": len(step.rows), "device": device}
    return compare_gradients(expected_P, flat_gradient(parameters, update_index)) | counted | about


def _add_gradient(
    sums: Mapping[str, Tensor],
    model: Any,
    step: Step,
    index: int,
    contract: SamplingParams,
    weights: Mapping[str, Tensor],
) -> None:
    """Add what a row's tokens make of weights, each pulled as the trainer's own loss pulled at it."""
    _, part, sample = sample_of(step, index, contract)
    pull_T = step.tokens["pull"][part].nan_to_num()
    wanted = pull_T.nonzero()[:, 0].tolist()
    if not wanted:
        return
    logprob_K = plain_logprobs(model_logits(model), sample, wanted)[0]
    loss = -(pull_T[wanted].to(logprob_K) * logprob_K).sum()
    made = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    for sum_, own in zip(sums.values(), made, strict=True):
        if own is not None:
            sum_ += own


def _missing_gradient(
    model: Any, step: Step, contract: SamplingParams, parameters: Mapping[str, Tensor], idle: Sequence[str]
) -> dict[str, Any]:
    """Which weights without a gradient some rows depend on."""
    asked: list[tuple[Any, list[int]]] = []
    pulls = [torch.zeros(0, dtype=torch.float64)]
    for index, _ in rows_to_check(step):
        _, part, sample = sample_of(step, index, contract)
        pull_T = step.tokens["pull"][part].double().nan_to_num()
        wanted = pull_T.nonzero()[:, 0].tolist()
        if wanted:
            asked.append((sample, wanted))
            pulls.append(pull_T[wanted])

    def said() -> Tensor:
        return torch.cat([logprobs(model, sample, wanted) for sample, wanted in asked])

    return missing_gradient(parameters, idle, said, torch.cat(pulls))
