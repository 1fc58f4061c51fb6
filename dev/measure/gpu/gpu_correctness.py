"""Correctness on a card: gradients of all forms of the forward, the sampler against the trainer, graphs."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from transformers import PreTrainedModel

from dev.measure.gpu.gpu_forms import (
    configs,
    exact_float32,
    gradient,
    plain_logprobs,
    random_model,
    rows,
    trainer_logprobs,
)
from truing.engines.base import Completion, Request
from truing.engines.local.cuda_graphs import GraphRows
from truing.engines.local.engine import LocalEngine
from truing.engines.local.padded_rows import PaddedRows
from truing.models.forward.hidden_states import why_no_tree
from truing.models.forward_proof import proof_sample
from truing.types.sample import Sample
from truing.types.sampling_params import SamplingParams

FLOAT32_ERROR = 1e-4
"""Relative error of a gradient in float32: thousands of products are summed in another order."""

GRAPH_ERROR = 1e-3
"""Nats by which captured and plain steps may differ in float32."""

LOGPROB_ERROR = {"float32": 1e-3, "bfloat16": 0.2}
"""Nats by which sampler and trainer may differ, as ``models/forward_proof.py`` has them."""


def gradients(device: str, toy: bool) -> dict[str, Any]:
    """Return relative errors of gradients by model and precision, from transformers' own in float32.

    ``bfloat16`` holds weights in bfloat16, ``autocast`` in float32 as the default recipe does.
    """
    found: dict[str, Any] = {}
    for name, config in configs(toy).items():
        model = random_model(config, device, "float32")
        samples = rows(*((40, 3, 12) if toy else (300, 8, 64)))
        with exact_float32():
            exact = gradient(model, plain_logprobs, samples)
            found[f"{name} float32"] = _errors(model, samples, exact)
        found[f"{name} bfloat16"] = _errors(deepcopy(model).bfloat16(), samples, exact)
        found[f"{name} autocast"] = _errors(model, samples, exact)
    agree = {}
    for case, errors in found.items():
        most = FLOAT32_ERROR if case.endswith("float32") else max(FLOAT32_ERROR, 2 * errors["plain"])
        agree[case] = max(errors["truing"], errors["padded"]) <= most
    return {"errors": found, "agree": agree, "all_agree": all(agree.values())}


def sampler(device: str, toy: bool) -> dict[str, Any]:
    """Return the largest difference of sampled log-probabilities from the trainer's, nats, by model."""
    largest: dict[str, float] = {}
    for name, config in configs(toy).items():
        for precision in ("float32", "bfloat16"):
            model = random_model(config, device, precision)
            with exact_float32():
                completions = _draw(LocalEngine(model, context_length=1024), toy)
                samples = [proof_sample(str(i), *pair) for i, pair in enumerate(_answers(completions, toy))]
                logprobs = trainer_logprobs(model, samples).tolist()
            recorded = torch.cat([each.logprob for each in completions]).tolist()
            largest[f"{name} {precision}"] = max(
                abs(one - other) for one, other in zip(logprobs, recorded, strict=True)
            )
    within = {case: value <= LOGPROB_ERROR[case.split()[-1]] for case, value in largest.items()}
    return {"largest": largest, "all_agree": all(within.values())}


def graphs(device: str, toy: bool) -> dict[str, Any]:
    """Return how captured steps draw against plain ones, in float32, by model.

    ``same_ids`` is the share of answers with the same ids. Elsewhere rounding carries a draw over the border
    of two ids, after which answers differ; up to there log-probabilities agree: ``largest`` is in nats.
    On a CPU the same steps are computed without a capture.
    """
    same: dict[str, float] = {}
    largest: dict[str, float] = {}
    for name, config in configs(toy).items():
        model = random_model(config, device, "float32")
        if why_no_tree(model, 1024):
            continue  # such a model is always sampled without graphs
        with exact_float32():
            engines = LocalEngine(model, context_length=1024), LocalEngine(model, context_length=1024)
            for engine, kind in zip(engines, (GraphRows, PaddedRows), strict=True):
                engine.rows_for = lambda longest, kind=kind, model=model: kind(model)  # type: ignore[method-assign]
            captured, plain = (_draw(engine, toy) for engine in engines)
        pairs = list(zip(captured, plain, strict=True))
        same[name] = sum(torch.equal(a.token_ids, b.token_ids) for a, b in pairs) / len(pairs)
        largest[name] = max(_difference(a, b) for a, b in pairs)
    agree = {name: same[name] > 0.5 and largest[name] <= GRAPH_ERROR for name in same}
    return {"same_ids": same, "largest": largest, "all_agree": all(agree.values())}


def _difference(one: Completion, other: Completion) -> float:
    """Return the largest difference of log-probabilities, nats, up to the first id that differs."""
    length = min(len(one.token_ids), len(other.token_ids))
    differ = (one.token_ids[:length] != other.token_ids[:length]).nonzero()
    common = int(differ[0]) if len(differ) else length
    return float((one.logprob[:common] - other.logprob[:common]).abs().max()) if common else 0.0


def _errors(model: PreTrainedModel, samples: list[Sample], exact: Tensor) -> dict[str, float]:
    """Return each form's relative error: ``truing`` in a tree if the model allows it, padded, and plain."""
    errors = {"truing": _error(gradient(model, trainer_logprobs, samples), exact)}
    with patch("truing.models.forward.hidden_states.why_no_tree", lambda causal, longest: "compared"):
        errors["padded"] = _error(gradient(model, trainer_logprobs, samples), exact)
    return errors | {"plain": _error(gradient(model, plain_logprobs, samples), exact)}


def _error(gradient: Tensor, exact: Tensor) -> float:
    return float((gradient - exact).norm() / exact.norm())


def _prompts(toy: bool) -> list[Tensor]:
    """Return prompts of several lengths, each twice."""
    sample = rows(40 if toy else 200, 1, 2)[0]
    return [sample.token_ids[: 8 + 5 * (i // 2)] for i in range(6 if toy else 32)]


def _draw(engine: LocalEngine, toy: bool) -> list[Completion]:
    requests = [Request(ids, ("gpu", i)) for i, ids in enumerate(_prompts(toy))]
    return engine.generate(requests, SamplingParams(max_new_tokens=8 if toy else 64))


def _answers(completions: list[Completion], toy: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield prompts with their answers."""
    return zip(_prompts(toy), (each.token_ids for each in completions), strict=True)
