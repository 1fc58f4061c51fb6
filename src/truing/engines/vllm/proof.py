"""The proof of a publication: does a server sample with the weights that were sent to it?

Sent weights say nothing of loaded ones. So three things are compared with the trainer: each layer's response
to a vector, through the engine's own kernel; log-probabilities of fixed rows; and log-probabilities of
sampled turns under the declared sampling parameters. The server's version is counted up afterwards.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, NamedTuple
from uuid import uuid4

import torch
from torch import Tensor, nn

from truing.engines.base import Request
from truing.engines.vllm.canary import OTHER_FORWARD, TOLERANCE, agreeing_share, compare_rows
from truing.engines.vllm.canary_turns import compare_turns, nearest
from truing.engines.vllm.client import ServerLostError, VllmClient
from truing.engines.vllm.completion_response import read_completion, read_prompt_logprobs
from truing.engines.vllm.expected_responses import Expected, expected_responses
from truing.engines.vllm.number_formats import FORMATS
from truing.engines.vllm.params import to_request, to_scoring
from truing.engines.vllm.probe import compare
from truing.engines.vllm.probe_answer import held_before
from truing.engines.vllm.publication import Publication
from truing.engines.vllm.repeated_turns import compare_repeated
from truing.engines.vllm.turn_causes import Turn, other_prompts
from truing.errors import EngineError, PublicationError
from truing.types.sampling_params import SamplingParams

GENERATE = "/inference/v1/generate"
"""vLLM's endpoint that takes ids and returns ids."""

Generate = Callable[[dict[str, Any]], dict[str, Any]]
"""From a request to its answer."""

ABORT_SECONDS = 10.0
"""Seconds that a server may take to end aborted requests."""


def load(client: VllmClient, publication: Publication, held: Sequence[str]) -> None:
    """Let a server load published weights; ``held`` are the adapters that it has.

    Raises:
        PublicationError: The server refuses them.
    """
    client.post("/abort_requests", {})  # of a collection that was interrupted
    try:
        if publication.adapter:
            _load_adapter(client, publication, held)
        else:
            client.call_worker("reload_weights", weights_path=str(publication.folder))
            client.call_worker("truing_refresh_packed")
    except ServerLostError:
        raise
    except EngineError as error:
        raise PublicationError(
            f"the vLLM server {client.url} did not load what was published",
            got=error.got,
            expected="names and shapes of the served model, in a folder that the server sees",
            remedy="serve the recipe's model; if the server runs on another machine, set engine.exchange"
            " to a folder that both see",
        ) from error
    deadline = time.monotonic() + ABORT_SECONDS
    while not client.post("/reset_prefix_cache").get("success"):
        if time.monotonic() > deadline:
            raise PublicationError(
                "the engine keeps keys and values of other weights",
                got="its prefix cache was not dropped: requests are still running",
                expected="no request in flight at a publication",
                remedy="no other program may send requests to this server",
            )
        time.sleep(0.1)


def _load_adapter(client: VllmClient, publication: Publication, held: Sequence[str]) -> None:
    """Load the adapter, in place of one of its name; unload others."""
    name = publication.adapter
    body = {"lora_name": name, "lora_path": str(publication.folder), "load_inplace": name in held}
    client.post("/v1/load_lora_adapter", body)
    for other in held:
        if other != name:
            client.post("/v1/unload_lora_adapter", {"lora_name": other})


class Start(NamedTuple):
    """What a server that has started is proven with besides."""

    prompt: Tensor  # a long one
    held: Sequence[
        Mapping[str, Any]
    ]  # the answer to a probe of its base before it loaded anything; may be []


def probe(client: VllmClient, publication: Publication) -> list[dict[str, Any]]:
    """Return what each worker of a server computes with."""
    return client.call_workers(
        "truing_probe", seed=publication.seed, adapter=bool(publication.adapter), base=True
    )


def check_kept(client: VllmClient, proven: Publication) -> None:
    """Raise unless a server still computes with what was proven last.

    Raises:
        PublicationError: Its weights have changed since, and answers were sampled with them.
    """
    try:
        compare(probe(client, proven), proven.expected, proven.dtype, proven.other_weights())
    except PublicationError as error:
        raise PublicationError(
            f"weights of version {proven.version} were proven, and the engine changed them since:"
            f" {error.what}",
            got=error.got,
            expected=error.expected,
            remedy="answers of the last step may be those of other weights: `truing check RUN` says which"
            " updates they reached; restart the engine, then `truing train --resume`",
        ) from error


def prove(
    client: VllmClient,
    generate: Generate,
    model: str,
    publication: Publication,
    policy: nn.Module,
    sampling_params: SamplingParams,
    start: Start | None = None,
) -> dict[str, Any]:
    """Compare a server with the publication; return the receipt, and set the server's version.

    Args:
        client: of the server.
        generate: returns the answer to a request for a turn, with expert routes if the server has any.
        model: its name of the base model.
        publication: what it has loaded.
        policy: with the published weights.
        sampling_params: the declared ones.
        start: of a server that has proven nothing since it started.

    Raises:
        PublicationError: It computes something else.
        NonFiniteError: It computes NaN.
    """
    name, rows = publication.adapter or model, publication.rows
    held = held_before(start.held, publication.expected) if start else []
    others = [*publication.other_weights(), *held]

    @cache
    def rounded(words: str) -> Expected:
        return expected_responses(policy, FORMATS[words], publication.seed, None)

    receipt: dict[str, Any] = {
        "version": publication.version,
        "trainer": publication.weight_digest,
        "sent": publication.sent_digest,
        "surviving": publication.surviving,
        "layers": compare(
            probe(client, publication), publication.expected, publication.dtype, others, rounded
        ),
    }
    tolerance = TOLERANCE[str(publication.dtype).removeprefix("torch.")]
    prompts = [*publication.prompts, *([start.prompt] if start else [])]
    sample = partial(_sample_turns, generate, name, publication, prompts, sampling_params)
    turns = sample()  # before rows are scored: a NaN is named with its token

    # one by one: with an adapter, vLLM 0.32 fails on scored prompts of several requests in flight
    def found() -> Tensor:
        return torch.cat([_row_logprobs(client, name, row) for row in rows])

    share = agreeing_share(publication.dtype, mixture=bool(publication.expected.experts))

    def otherwise() -> str:
        return nearest(other_prompts(policy, turns, sampling_params), tolerance) or OTHER_FORWARD

    scores = publication.scores
    receipt["rows"] = compare_rows(
        found(), scores, publication.other_scores(), tolerance, found, share, otherwise
    )
    uncached = partial(sample, cache_salt=uuid4().hex)
    rounding = receipt["rows"]["largest"]
    receipt["turns"] = compare_turns(policy, turns, sampling_params, tolerance, uncached, rounding)
    if start:
        again = sample(series="again")
        compare_repeated(policy, turns, again, sampling_params, tolerance)
    client.post("/update_weight_version", {"new_version": str(publication.version)})
    return receipt


def _row_logprobs(client: VllmClient, name: str, row: Tensor) -> Tensor:
    """Return the engine's log-probabilities of a row's tokens but the first: [T − 1]."""
    answer = client.post(
        GENERATE, {"model": name, "token_ids": row.tolist(), "sampling_params": to_scoring()}
    )
    return read_prompt_logprobs(answer, row)


def _sample_turns(
    generate: Generate,
    name: str,
    publication: Publication,
    prompts: Sequence[Tensor],
    params: SamplingParams,
    series: str = "",
    **options: Any,
) -> list[Turn]:
    """Return turns that the engine samples after the prompts, all at one time; each series has its seeds."""
    key = publication.version, publication.weight_digest, *([series] if series else [])
    requests = [Request(prompt, (*key, i)) for i, prompt in enumerate(prompts)]

    def turn(request: Request) -> Turn:
        body = {**to_request(request, params, name), **options}
        answer = generate(body)
        return request, read_completion(
            answer, request, body["request_id"], params, version=None, weight_digest=""
        )

    with ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(turn, requests))
