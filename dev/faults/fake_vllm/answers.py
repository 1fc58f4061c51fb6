"""Answers of the fake server, in vLLM's shapes."""

import base64
import io
import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from torch import Tensor

from dev.faults.fake_vllm.options import Options
from dev.faults.fake_vllm.sampling import Turn


def model_card(options: Options) -> dict[str, Any]:
    """Return the base model's entry in the list of models."""
    return {"id": options.name, "object": "model", "parent": None, "max_model_len": options.context}


def adapter_card(name: str, folder: str, options: Options) -> dict[str, Any]:
    """Return an adapter's entry in the list of models."""
    return {"id": name, "object": "model", "root": folder, "parent": options.name, "max_model_len": None}


def to_answer(
    turn: Turn, request: Mapping[str, Any], prompt_logprobs: Sequence[dict[str, Any] | None] | None
) -> dict[str, Any]:
    """Return the answer to a request."""
    count = max(1, request["sampling_params"].get("logprobs") or 0)
    choice = {
        "index": 0,
        "token_ids": turn.ids,
        "logprobs": {
            "content": [
                _token(token, by_id, count) for token, by_id in zip(turn.ids, turn.top_logprobs, strict=True)
            ]
        },
        "finish_reason": turn.finish_reason,
        "stop_reason": turn.ids[-1] if turn.finish_reason == "stop" else None,
        "routed_experts": encoded_routes(turn.routes),
        "weight_versions": version_spans(turn.versions),
    }
    return {
        "request_id": f"generate-tokens-{request.get('request_id', 0)}",
        "model": request["model"],
        "choices": [choice],
        "prompt_logprobs": prompt_logprobs,
        "prompt_token_ids": request["token_ids"] if request.get("return_token_ids") else None,
    }


def encoded_routes(routes: Tensor | None) -> str | None:
    """Return routes as vLLM writes them, base64 of a .npy file, a byte per expert."""
    if routes is None:
        return None
    with io.BytesIO() as file:
        np.save(file, routes.numpy().astype(np.uint8), allow_pickle=False)
        return base64.b64encode(file.getvalue()).decode()


def version_spans(versions: Sequence[str]) -> list[dict[str, Any]]:
    """Return the spans of tokens by the version of their weights."""
    spans, start = [], 0
    for version, tokens in groupby(versions):
        end = start + len(list(tokens))
        spans.append({"version": version, "start": start, "end": end})
        start = end
    return spans


def _token(token: int, by_id: Mapping[int, float], count: int) -> dict[str, Any]:
    """Return a token's log-probability, and those of the ``count`` first ids."""
    top = [{"token_id": id_, "logprob": clamped(logprob)} for id_, logprob in list(by_id.items())[:count]]
    return {"token_id": token, "logprob": clamped(by_id[token]), "top_logprobs": top}


def clamped(logprob: float) -> float:
    """Return a log-probability as vLLM writes it: −9999 for NaN and −∞."""
    return -9999.0 if math.isnan(logprob) else max(logprob, -9999.0)
