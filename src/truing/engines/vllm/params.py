"""The declared sampling parameters as vLLM's; what vLLM computes differently is refused by name.

vLLM applies temperature, presence and frequency penalties, ``min_tokens``, top-k and top-p as
``ops/sampling.py`` does. It differs in three things, and returns no support of a nucleus on every device.
"""

from typing import Any
from uuid import uuid4

import torch

from truing.engines.base import Request
from truing.errors import EngineError
from truing.types.sampling_params import SamplingParams
from truing.utils.rng import seed_of

MOST_TIES = 8
"""Logits that equal the k-th, beside k more: in bfloat16 SmolLM2 has at most 3 for k = 2, 23 for k = 100."""


def check_expressible(params: SamplingParams, max_logprobs: int) -> None:
    """Raise unless vLLM samples with these parameters, and returns what the trainer needs to score them."""
    reasons = {
        "repetition_penalty": (
            params.repetition_penalty != 1,
            "vLLM's repetition penalty counts the prompt, and not the response only",
            "use sampling.presence_penalty or sampling.frequency_penalty, which count the response only",
        ),
        "min_p": (
            params.min_p > 0 and params.top_p < 1,
            "vLLM applies min-p before top-p, which is another distribution",
            "use one of sampling.min_p and sampling.top_p",
        ),
        "top_p or min_p without top_k": (
            (params.top_p < 1 or params.min_p > 0) and not params.top_k,
            "vLLM does not return which tokens the nucleus holds, so the trainer cannot score them",
            f"set sampling.top_k too, at most {max_logprobs}, or sample without a nucleus",
        ),
        "top_k": (
            params.top_k > max_logprobs > -1,
            f"the server returns at most {max_logprobs} log-probabilities per token, fewer than the support",
            f"set sampling.top_k to at most {max_logprobs}, or start the server with a larger --max-logprobs",
        ),
    }
    for name, (differs, why, remedy) in reasons.items():
        if differs:
            raise EngineError(
                f"vLLM cannot sample with the declared sampling.{name}",
                got=why,
                remedy=f'{remedy}; engine.kind = "local" samples with any parameters',
            )


def support_logprobs(params: SamplingParams, dtype: torch.dtype, max_logprobs: int) -> int:
    """Return how many log-probabilities of a token to ask for, so that its whole support is among them.

    In another dtype than float32 logits are often equal, and top-k keeps all that equal the k-th.
    """
    if not params.top_k:
        return 0
    count = params.top_k if dtype is torch.float32 else with_ties(params.top_k)
    return count if max_logprobs < 0 else min(count, max_logprobs)


def with_ties(top_k: int) -> int:
    """Return a number of ids that holds those of top-k and those that are equal to the k-th."""
    return 2 * top_k + MOST_TIES


def to_scoring() -> dict[str, Any]:
    """Return vLLM's parameters to score a prompt: its ids' own log-probabilities, and one id sampled."""
    return {"temperature": 0.0, "max_tokens": 1, "prompt_logprobs": 0, "detokenize": False}


def to_request(request: Request, params: SamplingParams, model: str, logprobs: int) -> dict[str, Any]:
    """Return the body of a request; the answer repeats its id and prompt, so that an exchanged one shows.

    ``logprobs`` is the number of log-probabilities to return of each token beside its own.
    """
    return {
        "request_id": uuid4().hex,
        "model": model,
        "token_ids": request.prompt_ids.tolist(),
        "sampling_params": to_vllm(params, request.rng_key) | {"logprobs": logprobs},
        "return_token_ids": True,
    }


def to_vllm(params: SamplingParams, rng_key: tuple[object, ...]) -> dict[str, Any]:
    """Return vLLM's sampling parameters of one request; nothing is left to the server's defaults."""
    return {
        "n": 1,
        "temperature": params.temperature,
        "top_k": params.top_k,
        "top_p": params.top_p,
        "min_p": params.min_p,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "repetition_penalty": 1.0,
        "min_tokens": params.min_new_tokens,
        "max_tokens": params.max_new_tokens,
        "stop_token_ids": list(params.stop_ids),
        "ignore_eos": True,  # an end of sequence that nobody declared is a token like any other
        "seed": seed_of(*rng_key),
        "detokenize": False,
    }
