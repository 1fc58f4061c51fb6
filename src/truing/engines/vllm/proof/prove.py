"""The proof of a publication: does a server sample with the weights that were sent to it?

Sent weights say nothing of loaded ones. So three things are compared with the trainer: each layer's response
to a vector, through the engine's own kernel; log-probabilities of fixed rows; and log-probabilities of
sampled turns under the declared sampling parameters. The server's version is counted up afterwards.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from typing import Any, NamedTuple
from uuid import uuid4

import torch
from torch import Tensor, nn

from truing.engines.base import Request
from truing.engines.vllm.client import VllmClient
from truing.engines.vllm.completion_response import read_completion, read_prompt_logprobs
from truing.engines.vllm.params import to_request, to_scoring
from truing.engines.vllm.proof.canary import (
    OTHER_APPLICATION,
    OTHER_FORWARD,
    TOLERANCE,
    agreeing_share,
    compare_rows,
    largest,
    other_forwards,
    row_scores,
    tolerance_of,
)
from truing.engines.vllm.proof.canary_turns import Again, compare_turns, nearest
from truing.engines.vllm.proof.changed_weights import CHANGES
from truing.engines.vllm.proof.cut_prompts import compare_beginnings, with_other_beginning
from truing.engines.vllm.proof.expected_responses import Expected, expected_responses
from truing.engines.vllm.proof.probe import Changed, Comparison, Earlier
from truing.engines.vllm.proof.probe_answer import held_before, read_probe
from truing.engines.vllm.proof.repeated_turns import compare_repeated, follow_seeds
from truing.engines.vllm.proof.turn_causes import Turn, distance, other_prompts, turn_scores
from truing.engines.vllm.publication import Publication
from truing.errors import PublicationError
from truing.types.sampling_params import SamplingParams

GENERATE = "/inference/v1/generate"
"""vLLM's endpoint that takes ids and returns ids."""

Generate = Callable[[dict[str, Any]], dict[str, Any]]
"""From a request to its answer."""


class Start(NamedTuple):
    """What a server that has started is proven with besides."""

    prompt: Tensor  # a long one
    held: Sequence[
        Mapping[str, Any]
    ]  # the answer to a probe of its base before it loaded anything; may be []


def probe(client: VllmClient, publication: Publication, base: bool = True) -> list[dict[str, Any]]:
    """Return what each worker of a server computes with; ``base``: not with the adapter alone."""
    return client.call_workers(
        "truing_probe", seed=publication.seed, adapter=bool(publication.adapter), base=base
    )


def check_kept(client: VllmClient, proven: Publication) -> None:
    """Raise unless a server still computes with what was proven last, before something else is loaded.

    A base below an adapter stays: ``prove`` compares it.

    Raises:
        PublicationError: Its weights have changed since, and answers were sampled with them.
    """
    probes = probe(client, proven, base=not proven.adapter)
    with _changed_since(proven):
        answer = read_probe(probes, proven.expected)
        comparison = Comparison(answer, proven.expected, proven.dtype, proven.other_weights())
        comparison.adapter() if proven.adapter else comparison.base()


@contextmanager
def _changed_since(proven: Publication) -> Iterator[None]:
    """Say in a failed proof that the weights were right before, and that answers may not be theirs."""
    try:
        yield
    except PublicationError as error:
        raise PublicationError(
            f"weights of version {proven.version} were proven, and the engine changed them since:"
            f" {error.what}",
            got=error.got,
            expected=error.expected,
            remedy="answers of the last step may be those of other weights: `truing check RUN` says which"
            " updates they reached; restart the engine",
        ) from error


def prove(
    client: VllmClient,
    generate: Generate,
    model: str,
    publication: Publication,
    policy: nn.Module,
    sampling_params: SamplingParams,
    start: Start | None = None,
    proven: Publication | None = None,
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
        proven: what it was proven to hold before; the base below an adapter is the same.

    Raises:
        PublicationError: It computes something else.
        NonFiniteError: It computes NaN.
    """
    name, rows = publication.adapter or model, publication.rows
    held = held_before(start.held, publication.expected) if start else []
    others = [*publication.other_weights(), *held]

    @cache
    def changed(words: str) -> Expected:
        return expected_responses(policy, CHANGES[words], publication.seed, None)

    receipt: dict[str, Any] = {
        "version": publication.version,
        "trainer": publication.weight_digest,
        "sent": publication.sent_digest,
        "surviving": publication.surviving,
        "layers": _layers_receipt(client, publication, others, changed, proven),
    }
    tolerance = TOLERANCE[str(publication.dtype).removeprefix("torch.")]
    prompts = [*publication.prompts, *([start.prompt] if start else [])]

    def sample(prompts: Sequence[Tensor] = prompts, **options: Any) -> list[Turn]:
        return _sample_turns(generate, name, publication, prompts, sampling_params, **options)

    turns = sample()  # before rows are scored: a NaN is named with its token

    # one by one: with an adapter, vLLM 0.32 fails on scored prompts of several requests in flight
    def found() -> Tensor:
        return torch.cat([_row_logprobs(client, name, row) for row in rows])

    share = agreeing_share(publication.dtype, mixture=bool(publication.expected.experts))

    def otherwise() -> str:
        return (
            nearest(other_prompts(policy, turns, sampling_params), tolerance)
            or nearest(other_forwards(policy, rows, scored), tolerance)
            or (OTHER_APPLICATION if publication.adapter else OTHER_FORWARD)
        )

    scores, scored = publication.scores, found()
    allowed = partial(tolerance_of, dtype=publication.dtype, policy=policy)
    of_rows = allowed(largest(scored - scores, share), scores=lambda: row_scores(policy, rows))
    receipt["rows"] = compare_rows(
        scored, scores, publication.other_scores(), of_rows, found, share, otherwise
    )
    again = Again(
        partial(sample, cache_salt=uuid4().hex),
        lambda prompt: sample([prompt], series=uuid4().hex)[0],
        partial(_row_logprobs, client, name),
    )
    rounding = receipt["rows"]["largest"]

    def of_turns(turns: Sequence[Turn]) -> float:
        found = distance(policy, turns, sampling_params)
        return allowed(found, scores=lambda: turn_scores(policy, turns, sampling_params))

    def compare(turns: Sequence[Turn]) -> dict[str, Any]:
        return compare_turns(policy, turns, sampling_params, of_turns(turns), again, rounding)

    receipt["turns"] = compare(turns)
    if start:
        second = sample(series="again")
        uncached = partial(sample, series="again", cache_salt=uuid4().hex)
        compare_repeated(policy, turns, second, sampling_params, of_turns(second), uncached, compare)
        receipt["turns"]["seeded"] = follow_seeds(turns, sample(publication.prompts))
        if publication.dtype is not torch.float32:  # there a cut prompt is beyond rounding
            changed = [*publication.prompts, with_other_beginning(start.prompt)]
            compare_beginnings(policy, turns[-1], sample(changed)[-1], sampling_params)
    client.post("/update_weight_version", {"new_version": str(publication.version)})
    return receipt


def _layers_receipt(
    client: VllmClient,
    publication: Publication,
    others: Earlier,
    changed: Changed,
    proven: Publication | None,
) -> dict[str, Any]:
    """Return the receipt of a server's layers."""
    answer = read_probe(probe(client, publication), publication.expected)
    comparison = Comparison(answer, publication.expected, publication.dtype, others, changed)
    with _changed_since(proven) if publication.adapter and proven else nullcontext():
        base = comparison.base()
    return base | comparison.adapter()


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
