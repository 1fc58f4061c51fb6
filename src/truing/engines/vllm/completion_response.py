"""From a server's answer to a completion: everything in it is checked, and nothing is filled in."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from truing.engines.base import Completion, Request
from truing.engines.vllm.client import ServerLostError
from truing.engines.vllm.publication import weights_name
from truing.engines.vllm.routed_experts import read_routes
from truing.errors import EngineError, NonFiniteError
from truing.types.rollout import hash_of_ids
from truing.types.sampling_params import SamplingParams
from truing.types.status import FinishReason
from truing.types.token import Origin, Support
from truing.utils.parse import MALFORMED

FINISHES = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


def read_completion(
    answer: Mapping[str, Any],
    request: Request,
    request_id: str,
    params: SamplingParams,
    version: int | None,
    weight_digest: str,
    vocabulary: int,
) -> Completion:
    """Return the completion in an answer to the request that was sent with an id.

    A ``version`` of None accepts weights that are not proven yet. Ids are below ``vocabulary``.

    Raises:
        EngineError: It is no answer to the request: ids without log-probabilities, other lengths, an
            undeclared stop, weights of another version.
        NonFiniteError: A log-probability is NaN or infinite.
        ServerLostError: The server aborted the request, as one does that is stopped.
    """
    try:
        (choice,) = answer["choices"]
        ids = [_token_id(token, vocabulary) for token in choice["token_ids"]]
        content = choice["logprobs"]["content"]
        scored = [_token_id(token["token_id"], vocabulary) for token in content]
        logprobs = [float(token["logprob"]) for token in content]
        supports = [_support(token["top_logprobs"], vocabulary) for token in content] if params.top_k else []
        finish = _finish(choice["finish_reason"])
        versions = {span["version"] for span in choice["weight_versions"] or ()}
        encoded = choice.get("routed_experts")
        routes = read_routes(encoded, len(request.prompt_ids) + len(ids)) if encoded else None
    except MALFORMED as error:
        got = f"{type(error).__name__}: {error} in {str(answer)[:300]}"
        raise _invalid("it cannot be read", got, "an answer of vLLM") from error
    if lacking := [name for name in ("request_id", "prompt_token_ids") if answer.get(name) is None]:
        raise _invalid(
            "it does not repeat its request",
            f"an answer without {' and '.join(lacking)}",
            "its id and prompt, as vLLM returns them",
            "no proxy may change the server's answers",
        )
    if not str(answer["request_id"]).endswith(request_id):  # vLLM adds a prefix
        got = f"the request id {str(answer['request_id'])[:100]}"
        raise _invalid("it is an answer to another request", got, f"{request_id}, as was sent")
    if answer["prompt_token_ids"] != request.prompt_ids.tolist():
        got = f"the prompt {str(answer['prompt_token_ids'])[:100]}"
        raise _invalid(
            "it is an answer to another request", got, f"the {len(request.prompt_ids)} ids that were sent"
        )
    _check_ids(ids, scored, finish, choice.get("stop_reason"), params)
    if version is not None and versions != {(name := weights_name(version, weight_digest))}:
        raise _invalid(
            "other weights than those of its publication sampled it",
            f"tokens of weights {sorted(versions)}",
            f"weights {name} alone",
            "no other program may publish weights to this server, and no proxy may change its answers",
        )
    _check_logprobs(ids, logprobs)
    # greedy decoding has one outcome: its probability under the declared parameters is 1
    logprob = torch.tensor(logprobs) if params.temperature else torch.zeros(len(ids))
    splits = torch.tensor([0, *(len(each) for each in supports)]).cumsum(0)
    return Completion(
        torch.tensor(ids),
        torch.full((len(ids),), Origin.SAMPLED, dtype=torch.uint8),
        logprob,
        Support(torch.cat(supports), splits) if supports else None,
        finish,
        version or 0,
        weight_digest,
        routes,
        hash_of_ids(torch.tensor(answer["prompt_token_ids"])),
    )


def read_prompt_logprobs(answer: Mapping[str, Any], row: Tensor) -> Tensor:
    """Return the log-probabilities of a scored prompt's ids but the first: [T − 1]."""
    try:
        logprobs = [
            float(by_id[str(token)]["logprob"])
            for token, by_id in zip(row[1:].tolist(), answer["prompt_logprobs"][1:], strict=True)
        ]
    except MALFORMED as error:
        got = f"{type(error).__name__}: {error} in {str(answer.get('prompt_logprobs'))[:300]}"
        raise _invalid("it cannot be read", got, "a log-probability of each id of the prompt") from error
    return torch.tensor(logprobs)


def _finish(reason: str) -> FinishReason:
    """Return why a turn ended; raise if the server aborted it."""
    if reason == "abort":
        raise ServerLostError(
            "a vLLM server aborted a request",
            got="finish reason abort",
            expected="stop or length",
            remedy="no other program may stop the server or abort its requests",
        )
    return FINISHES[reason]


def _token_id(value: object, vocabulary: int) -> int:
    """Return an id of the vocabulary; torch and the tokenizer fail on others in their own ways."""
    if type(value) is not int or not 0 <= value < vocabulary:
        raise ValueError(f"{value!r:.80} is not an id below {vocabulary}, the size of the vocabulary")
    return value


def _support(top_logprobs: Sequence[Mapping[str, Any]], vocabulary: int) -> Tensor:
    """Return the ids that could have been sampled: [K] int32."""
    possible = [each["token_id"] for each in top_logprobs if _is_possible(each["logprob"])]
    return torch.tensor(sorted({_token_id(each, vocabulary) for each in possible}), dtype=torch.int32)


def _is_possible(logprob: float | None) -> bool:
    """Whether a token had a probability above 0; vLLM writes −9999 for −∞."""
    return logprob is not None and logprob > -9999.0


def _check_ids(
    ids: Sequence[int],
    scored: Sequence[int],
    finish: FinishReason,
    stop_reason: object,
    params: SamplingParams,
) -> None:
    """Raise unless the ids are a turn that the declared parameters allow."""
    if ids != scored:
        raise _invalid(
            "it scores other ids than it has",
            f"log-probabilities of {list(scored)[:8]} … for ids {list(ids)[:8]} …",
            "of the same ids",
        )
    if not 1 <= len(ids) <= params.max_new_tokens:
        expected = f"1 to {params.max_new_tokens}, sampling.max_new_tokens"
        raise _invalid("it has too few or too many ids", f"{len(ids)} ids", expected)
    stops = [n for n, token in enumerate(ids) if token in params.stop_ids]
    if stops and stops[0] < params.min_new_tokens:
        expected = f"none among the first {params.min_new_tokens}, sampling.min_new_tokens"
        raise _invalid("it stops before sampling.min_new_tokens", f"a stop id at {stops[0]}", expected)
    if stops and stops[0] < len(ids) - 1:
        raise _invalid(
            "it goes on after a stop id",
            f"{len(ids)} ids with stop ids at {stops}",
            f"an end at the first of the stop ids {list(params.stop_ids)[:8]}",
        )
    if finish is FinishReason.LENGTH and stops:
        raise _invalid(
            "its finish reason is not that of its ids",
            f"finish reason length after the stop id {ids[-1]}",
            "finish reason stop after a stop id",
        )
    if finish is FinishReason.STOP and not stops:
        raise _stopped_without(ids, stop_reason, params)
    if finish is FinishReason.LENGTH and len(ids) < params.max_new_tokens:
        got = f"finish reason length after {len(ids)} ids"
        raise _invalid("it was cut before its limit", got, f"after {params.max_new_tokens}")


def _stopped_without(ids: Sequence[int], stop_reason: object, params: SamplingParams) -> EngineError:
    """Return the error for a turn that is said to have stopped, without a stop id at its end."""
    expected = f"a stop id at its end, one of {list(params.stop_ids)[:8]}"
    got = f"finish reason stop after {len(ids)} ids, stop reason {stop_reason}"
    if stop_reason in params.stop_ids:
        return _invalid("it leaves out the stop id that ended it", got, expected)
    if len(ids) == params.max_new_tokens and stop_reason is None:
        got += f", at the limit of {params.max_new_tokens}"
        return _invalid("its finish reason is not that of its ids", got, "finish reason length")
    return _invalid("it stops at an id that nobody declared", got, expected)


def _check_logprobs(ids: Sequence[int], logprobs: Sequence[float]) -> None:
    """Raise unless each log-probability is a number ≤ 0."""
    for n, (token, logprob) in enumerate(zip(ids, logprobs, strict=True)):
        got = f"{logprob} for token {n} of a turn, id {token}"
        if not math.isfinite(logprob) or logprob <= -9999.0:
            raise NonFiniteError(
                "vLLM returned an impossible log-probability",
                got=got,
                expected="a finite number ≤ 0",
                remedy="the weights have diverged, or the engine's dtype overflows: try another engine.dtype",
            )
        if logprob > 1e-3:
            raise _invalid("it has a log-probability above 0", got, "a number ≤ 0, in nats")


def _invalid(
    reason: str,
    got: str,
    expected: str,
    remedy: str = "check the server's version and arguments (`truing explain vllm`)",
) -> EngineError:
    return EngineError(
        f"vLLM's answer does not fit its request: {reason}",
        got=got,
        expected=expected,
        remedy=f"nothing of it was trained on; {remedy}",
    )
