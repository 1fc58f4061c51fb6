"""Correctness on a card: gradients of all forms of the forward, the sampler against the trainer, graphs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
)

from truing.engines.base import Completion, Request
from truing.engines.local.cuda_graphs import GraphRows
from truing.engines.local.engine import LocalEngine
from truing.engines.local.padded_rows import PaddedRows
from truing.engines.model_checks import proof_sample
from truing.models.forward.collate import collate
from truing.models.forward.hidden_states import why_no_tree
from truing.models.forward.score import autocast, score
from truing.types.sample import Sample
from truing.types.sampling_params import SamplingParams

VOCABULARY = 1024
FLOAT32_ERROR = 1e-4
"""Relative error of a gradient in float32: thousands of products are summed in another order."""

LOGPROB_ERROR = {"float32": 1e-3, "bfloat16": 0.2}
"""Nats by which sampler and trainer may differ, as ``engines/model_checks.py`` has them."""

Logprobs = Callable[[PreTrainedModel, list[Sample]], Tensor]


def configs(toy: bool) -> dict[str, PreTrainedConfig]:
    """Return small configs in three shapes; ``gemma3-window`` attends to fewer tokens than a row has."""
    width, layers = (64, 2) if toy else (512, 4)
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": width // 8,
        "max_position_embeddings": 1024,
    }
    return {
        "llama": LlamaConfig(**sizes),
        "qwen3": Qwen3Config(**sizes),
        "gemma3": Gemma3TextConfig(**sizes, sliding_window=1024),
        "gemma3-window": Gemma3TextConfig(**sizes, sliding_window=16),
    }


def gradients(device: str, toy: bool) -> dict[str, Any]:
    """Return relative errors of gradients by model and precision, from transformers' own in float32.

    ``bfloat16`` holds weights in bfloat16, ``autocast`` in float32 as the default recipe does.
    """
    found: dict[str, Any] = {}
    for name, config in configs(toy).items():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).eval().to(device)
        samples = rows(*((40, 3, 12) if toy else (300, 8, 64)))
        with exact_float32():
            exact = _gradient(model, plain_logprobs, samples)
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
            model = _model(config, device, precision)
            with exact_float32():
                completions = _draw(LocalEngine(model, context_length=1024), toy)
                samples = [proof_sample(str(i), *pair) for i, pair in enumerate(_answers(completions, toy))]
                logprobs = _scored(model, samples).tolist()
            recorded = torch.cat([each.logprob for each in completions]).tolist()
            largest[f"{name} {precision}"] = max(
                abs(one - other) for one, other in zip(logprobs, recorded, strict=True)
            )
    within = {case: value <= LOGPROB_ERROR[case.split()[-1]] for case, value in largest.items()}
    return {"largest": largest, "all_agree": all(within.values())}


def graphs(device: str, toy: bool) -> dict[str, Any]:
    """Return the share of answers with the same ids with captured steps as without, in float32, by model.

    On a CPU the same steps are computed without a capture.
    """
    same: dict[str, float] = {}
    for name, config in configs(toy).items():
        model = _model(config, device, "float32")
        if why_no_tree(model, 1024):
            continue  # such a model is always sampled without graphs
        with exact_float32():
            engines = LocalEngine(model, context_length=1024), LocalEngine(model, context_length=1024)
            for engine, kind in zip(engines, (GraphRows, PaddedRows), strict=True):
                engine.rows_for = lambda longest, kind=kind, model=model: kind(model)  # type: ignore[method-assign]
            captured, plain = (_draw(engine, toy) for engine in engines)
        equal = [torch.equal(a.token_ids, b.token_ids) for a, b in zip(captured, plain, strict=True)]
        same[name] = sum(equal) / len(equal)
    return {"same_ids": same, "all_agree": all(share == 1.0 for share in same.values())}


def rows(prompt: int, answers: int, length: int) -> list[Sample]:
    """Return samples that share a prompt, and half of each answer with its neighbour."""
    generator = torch.Generator().manual_seed(0)

    def draw(count: int) -> Tensor:
        return torch.randint(2, VOCABULARY, (count,), generator=generator)

    shared, halves = draw(prompt), [draw(length // 2) for _ in range(answers)]
    return [
        proof_sample(str(i), shared, torch.cat([halves[i // 2], draw(length // 2)])) for i in range(answers)
    ]


def plain_logprobs(model: PreTrainedModel, samples: list[Sample]) -> Tensor:
    """Return the answers' log-probabilities by transformers' own forward of each row: [N]."""
    found = []
    for sample in samples:
        with autocast(model):
            logits_TV = model(input_ids=sample.token_ids[None].to(model.device)).logits[0]
        answer = sample.token_ids[sample.prompt_length :, None].to(model.device)
        logprob_TV = logits_TV[sample.prompt_length - 1 : -1].float().log_softmax(-1)
        found.append(logprob_TV.gather(1, answer)[:, 0])
    return torch.cat(found)


@contextmanager
def exact_float32() -> Iterator[None]:
    """Compute weights in float32 in float32 within the block: no autocast, no TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    places = ("score", "padded_rows", "cuda_graphs")
    modules = ("truing.models.forward", "truing.engines.local", "truing.engines.local")
    patches = [
        patch(f"{module}.{place}.autocast", lambda model: nullcontext())
        for module, place in zip(modules, places, strict=True)
    ]
    try:
        with patches[0], patches[1], patches[2], patch(f"{__name__}.autocast", lambda model: nullcontext()):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _errors(model: PreTrainedModel, samples: list[Sample], exact: Tensor) -> dict[str, float]:
    """Return each form's relative error: ``truing`` in a tree if the model allows it, padded, and plain."""
    errors = {"truing": _error(_gradient(model, _scored, samples), exact)}
    with patch("truing.models.forward.hidden_states.why_no_tree", lambda causal, longest: "compared"):
        errors["padded"] = _error(_gradient(model, _scored, samples), exact)
    return errors | {"plain": _error(_gradient(model, plain_logprobs, samples), exact)}


def _error(gradient: Tensor, exact: Tensor) -> float:
    return float((gradient - exact).norm() / exact.norm())


def _scored(model: PreTrainedModel, samples: list[Sample]) -> Tensor:
    """Return the answers' log-probabilities by the trainer's forward: [N]."""
    batch = collate(samples)
    return score(model, batch, batch.policy_mask).logprob[batch.policy_mask.to(model.device)]


def _gradient(model: PreTrainedModel, logprobs: Logprobs, samples: list[Sample]) -> Tensor:
    """Return the gradient of a weighted sum of log-probabilities by all weights: [P] float64 on the CPU."""
    model.zero_grad()
    logprob_N = logprobs(model, samples)
    (logprob_N * torch.linspace(-1, 1, len(logprob_N), device=model.device)).sum().backward()
    weights = (weight.grad for weight in model.parameters())
    return torch.cat([grad.flatten().double().cpu() for grad in weights if grad is not None])


def _model(config: PreTrainedConfig, device: str, precision: str) -> PreTrainedModel:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, precision)).eval().to(device)


def _prompts(toy: bool) -> list[Tensor]:
    """Return prompts of several lengths, each twice."""
    sample = rows(40 if toy else 200, 1, 2)[0]
    return [sample.token_ids[: 8 + 5 * (i // 2)] for i in range(6 if toy else 32)]


def _draw(engine: LocalEngine, toy: bool) -> list[Completion]:
    requests = [Request(ids, ("gpu", i)) for i, ids in enumerate(_prompts(toy))]
    return engine.generate(requests, SamplingParams(max_new_tokens=8 if toy else 300))


def _answers(completions: list[Completion], toy: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield prompts with their answers."""
    return zip(_prompts(toy), (each.token_ids for each in completions), strict=True)
