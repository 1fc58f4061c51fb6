"""Sample a turn as vLLM does: an implementation of its own, which shares nothing with ``ops/sampling.py``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dev.faults.fake_vllm.weights import HeldModel, Scope

Params = Mapping[str, Any]
"""vLLM's sampling parameters, complete."""

DEFAULTS: Params = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "min_tokens": 0,
    "max_tokens": 16,
    "stop_token_ids": (),
    "logprobs": None,
    "prompt_logprobs": None,
    "seed": None,
}
"""vLLM's value of what a request leaves out."""


@dataclass
class Turn:
    """A sampled turn; ``top_logprobs`` has for each token the log-probabilities by id, its own first."""

    ids: list[int] = field(default_factory=list)
    top_logprobs: list[dict[int, float]] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)  # of the weights, by token
    finish_reason: str = "length"
    routes: Tensor | None = None  # of prompt and turn but for the last token: [T − 1, layers, K]


def sample_turn(
    model: HeldModel,
    prompt: Sequence[int],
    scope: Scope,
    params: Params,
    version: Callable[[], str],
    aborted: Callable[[], bool],
) -> Turn:
    """Sample until a stop id, ``max_tokens``, or an abort."""
    turn, generator = Turn(), torch.Generator().manual_seed(params["seed"] or 0)
    logits, cache = model.prefill(prompt, scope)
    while len(turn.ids) < params["max_tokens"]:
        if aborted():
            turn.finish_reason = "abort"
            break
        processed_V = process_logits(logits[-1], prompt, turn.ids, params)
        token = draw(processed_V, params, generator)
        turn.ids.append(token)
        turn.top_logprobs.append(top_logprobs(logits[-1], processed_V, token, params["logprobs"] or 0))
        turn.versions.append(version())
        if is_stop(token, params):
            turn.finish_reason = "stop"
            break
        if len(turn.ids) < params["max_tokens"]:
            logits = model.forward([token], scope, cache)
    turn.routes = cache.routes
    return turn


def process_logits(
    logits_V: Tensor, prompt: Sequence[int], generated: Sequence[int], params: Params
) -> Tensor:
    """Return the logits that a token is sampled from, in vLLM's order of steps."""
    logits_V = logits_V.clone()
    if len(generated) < params["min_tokens"]:
        logits_V[params["stop_token_ids"]] = -torch.inf
    seen = torch.tensor(sorted({*prompt, *generated}))
    factor = params["repetition_penalty"]
    logits_V[seen] = torch.where(logits_V[seen] > 0, logits_V[seen] / factor, logits_V[seen] * factor)
    for token in set(generated):
        logits_V[token] -= params["presence_penalty"] + params["frequency_penalty"] * generated.count(token)
    if params["temperature"] == 0:
        return logits_V
    logits_V = logits_V / params["temperature"]
    if params["min_p"]:
        probs_V = logits_V.softmax(0)
        logits_V[probs_V < params["min_p"] * probs_V.max()] = -torch.inf
    if params["top_k"] > 0:
        logits_V[logits_V < logits_V.topk(min(params["top_k"], len(logits_V))).values[-1]] = -torch.inf
    if params["top_p"] < 1:
        sorted_V, order_V = logits_V.sort()
        below_V = sorted_V.softmax(0).cumsum(0) <= 1 - params["top_p"]
        below_V[-1] = False
        logits_V[order_V[below_V]] = -torch.inf
    return logits_V


def draw(processed_V: Tensor, params: Params, generator: torch.Generator) -> int:
    """Return a token: the largest logit at temperature 0, else by exponential noise."""
    if params["temperature"] == 0:
        return int(processed_V.argmax())
    noise_V = torch.empty(len(processed_V)).exponential_(generator=generator)
    return int((processed_V.softmax(0) / noise_V).argmax())


def top_logprobs(logits_V: Tensor, processed_V: Tensor, token: int, count: int) -> dict[int, float]:
    """Return processed log-probabilities by id: the token's first, then the ``count`` largest."""
    logprob_V = processed_V.log_softmax(0)
    top = logprob_V.topk(min(count, len(logprob_V))).indices.tolist()
    return {id_: float(logprob_V[id_]) for id_ in dict.fromkeys([token, *top])}


def is_stop(token: int, params: Params) -> bool:
    """Return whether a turn ends after a token."""
    return token in params["stop_token_ids"]


def prompt_logprobs(model: HeldModel, prompt: Sequence[int], scope: Scope) -> list[dict[str, Any] | None]:
    """Return the raw log-probability of each token of a prompt, None for the first; it reads no cache."""
    logits, _ = model.prefill(prompt, scope, cached=False)
    logprob_TV = logits.log_softmax(1)
    scored = [
        {str(id_): {"logprob": float(logprob_TV[t, id_]), "rank": 1}} for t, id_ in enumerate(prompt[1:])
    ]
    return [None, *scored]
