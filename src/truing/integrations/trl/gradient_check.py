"""Comparison of another trainer's gradient with the sum of plain backward passes of each row."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from truing.distributed.ranks import Ranks
from truing.doctor.evidence import Step
from truing.doctor.oracle.forward import plain_logprobs
from truing.integrations.trl.forward_check import logprobs, model_logits, rows_to_check, sample_of
from truing.measurements.gradient_comparison import (
    MIN_GRADIENT_MASS,
    compare_gradients,
    flat_gradient,
    gradient_mass,
    is_missing,
)
from truing.measurements.weight_digests import rotating_slice
from truing.measurements.weights_without_gradient import missing_gradient
from truing.models.forward.rounding_noise import device_and_precision, is_coarse, random_rounding
from truing.types.sampling_params import SamplingParams
from truing.types.weight_facts import GradientDifference, MissingGradient


def gradient_sum_facts(
    model: Any,
    step: Step,
    sampling_params: SamplingParams,
    parameters: Mapping[str, Tensor],
    step_index: int,
    *,
    clip_factor: float,
    ranks: Ranks,
) -> dict[str, Any]:
    """Compare the optimizer's gradient with the rows' sum: each row by a plain forward and backward.

    With several ranks the sum is over the rows of all, and the facts are those of the rank that differs most.

    Args:
        model: the policy, without the trainer's wrappers.
        step: with rows of this rank, and the token gradients of the trainer's own loss, averaged over ranks.
        sampling_params: of the trainer's scoring.
        parameters: trained weights, with the gradient that the optimizer gets.
        step_index: selects the compared weights, if there are too many.
        clip_factor: of this rank's gradient, in (0, 1].
        ranks: all of which call this together.

    ``rounding`` is the difference of the rows' sum from itself rounded at random, if it is not in float32.
    """
    device, weights = (
        device_and_precision(model),
        {n: parameters[n] for n in parameters if n in rotating_slice(parameters, step_index)},
    )

    def flat(sums: Mapping[str, Tensor]) -> Tensor:
        # keeps all other weights, so that the same slice is taken
        whole = rotating_slice(dict(parameters) | dict(sums), step_index)
        return torch.cat([each.detach().reshape(-1).double().cpu() for each in whole.values()])

    def add_rows(sums: Mapping[str, Tensor], *, rounded: bool) -> Tensor:
        for index in range(len(step.samples)):
            with random_rounding(model, index) if rounded else nullcontext():
                _add_gradient(sums, model, step, index, sampling_params, weights)
        return flat(sums)

    total = {name: torch.zeros_like(weight, dtype=torch.float32) for name, weight in weights.items()}
    own_P = ranks.together("the gradient of each row", lambda: add_rows(total, rounded=False))
    expected_P = clip_factor * ranks.sum("the gradient of all rows", own_P)
    trainer_P = flat_gradient(parameters, step_index)
    about: dict[str, Any] = gradient_mass(
        clip_factor * step.tokens["token_gradient"], step.tokens["new_logprob"]
    ) | {"rows": len(step.samples), "device": device}
    if is_coarse(device):
        # summed in the weights' precision, as a trainer sums micro-batches
        again = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        again_P = ranks.together("each row rounded", lambda: add_rows(again, rounded=True))
        again_P = clip_factor * ranks.sum("the gradient of all rows, rounded", again_P)
        about["rounding"] = float((again_P - expected_P).norm())
    missing = {name for name, sum_ in total.items() if is_missing(sum_)}
    on_all_ranks = set.intersection(*ranks.gather("weights without a gradient", missing))
    without_gradient = [name for name in total if name in on_all_ranks]
    about["missing_gradient"] = ranks.together(
        "a test of weights without a gradient",
        lambda: (
            _missing_gradient(model, step, sampling_params, parameters, without_gradient)
            if about["free"] > MIN_GRADIENT_MASS
            else None
        ),
    )
    about |= compare_gradients(expected_P, trainer_P)
    own = compare_gradients(clip_factor * ranks.size * own_P, trainer_P)
    return _worst(ranks.gather("the comparison of gradients", (about, own)))


def _worst(by_rank: Sequence[tuple[dict[str, Any], GradientDifference]]) -> dict[str, Any]:
    """Return the fact of the rank that differs most, with counts of all ranks.

    ``own`` compares the gradient of each rank with that of its own rows.
    """
    every, own = zip(*by_rank, strict=True)
    fact = dict(max(every, key=lambda about: about["difference"]))
    fact |= {name: sum(about[name] for about in every) for name in ("rows", "pulled", "free")}
    missing = [about["missing_gradient"] for about in every]
    fact["missing_gradient"] = max(missing, key=lambda found: found["moved"] if found else 0.0)
    if len(every) > 1:
        fact |= {"ranks": len(every), "own": list(own)}
    return fact


def _add_gradient(
    sums: Mapping[str, Tensor],
    model: Any,
    step: Step,
    index: int,
    sampling_params: SamplingParams,
    weights: Mapping[str, Tensor],
) -> None:
    """Add a row's gradient on the weights, by the token gradients of the trainer's own loss."""
    _, part, sample = sample_of(step, index, sampling_params)
    token_gradient_T = step.tokens["token_gradient"][part].nan_to_num()
    places = token_gradient_T.nonzero()[:, 0].tolist()
    if not places:
        return
    logprob_K = plain_logprobs(model_logits(model), sample, places)[0]
    loss = -(token_gradient_T[places].to(logprob_K) * logprob_K).sum()
    gradients = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    for sum_, gradient in zip(sums.values(), gradients, strict=True):
        if gradient is not None:
            sum_ += gradient


def _missing_gradient(
    model: Any,
    step: Step,
    sampling_params: SamplingParams,
    parameters: Mapping[str, Tensor],
    without_gradient: Sequence[str],
) -> MissingGradient | None:
    """Return the weight without a gradient that some rows depend on most, if there is one."""
    tested: list[tuple[Any, list[int]]] = []
    token_gradients = [torch.zeros(0, dtype=torch.float64)]
    for index, _ in rows_to_check(step):
        _, part, sample = sample_of(step, index, sampling_params)
        token_gradient_T = step.tokens["token_gradient"][part].double().nan_to_num()
        places = token_gradient_T.nonzero()[:, 0].tolist()
        if places:
            tested.append((sample, places))
            token_gradients.append(token_gradient_T[places])

    def row_logprobs() -> Tensor:
        return torch.cat([logprobs(model, sample, places) for sample, places in tested])

    return missing_gradient(parameters, without_gradient, row_logprobs, torch.cat(token_gradients))
