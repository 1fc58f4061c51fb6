"""A publication: the trainer's weights, sent to a server, and proven to be what it samples with.

Sent weights say nothing of loaded ones. So three things are compared with the trainer: each layer's response
to a vector, through the engine's own kernel; log-probabilities of fixed rows; and log-probabilities of
sampled turns under the declared sampling parameters. The server's version is counted up afterwards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor, nn

from truing.engines.base import Completion, Request
from truing.engines.vllm.answer import read_completion, read_prompt_logprobs
from truing.engines.vllm.canary import TOLERANCE, canary_rows, compare_rows, compare_turns, row_scores
from truing.engines.vllm.client import VllmClient
from truing.engines.vllm.params import to_scoring, to_vllm
from truing.engines.vllm.probe import Expected, compare, expected_responses
from truing.engines.vllm.sent_weights import surviving_share, trained_weights, write_weights
from truing.errors import PublicationError
from truing.types.sampling_params import SamplingParams
from truing.utils.rng import seed_of

GENERATE = "/inference/v1/generate"
"""vLLM's endpoint that takes ids and returns ids."""


@dataclass(frozen=True, eq=False)
class Publication:
    """Published weights, and what a server that holds them computes."""

    version: int
    weight_digest: str  # the trainer's, of its trained parameters
    sent_digest: str  # of the files
    folder: Path
    adapter: str  # the adapter's name in the engine; "" if all weights are sent
    seed: int  # of the probe vectors
    dtype: torch.dtype  # of the engine
    expected: Expected
    rows: Sequence[Tensor]
    scores: Mapping[str, Tensor]  # of the rows, by what they are scores of; the published version first
    surviving: float  # share of changed elements that differ in the engine's dtype; NaN if none changed


def prepare(
    policy: nn.Module,
    version: int,
    weight_digest: str,
    folder: Path,
    dtype: torch.dtype,
    before: Publication | None,
) -> Publication:
    """Write the policy's trained weights to ``folder``, and compute what a correct engine answers."""
    weights = trained_weights(policy)
    seed = seed_of("probe", version, weight_digest) % 2**20  # the hash of the indices is in 64 bits
    sent_digest = write_weights(policy, weights, folder)
    adapter = f"truing-{version}-{weight_digest}" if isinstance(policy, PeftModel) else ""
    rows = canary_rows(policy)
    scores = {"the published weights": row_scores(policy, rows)}
    if before is not None:
        first = before.scores.get("the weights of the start", before.scores["the published weights"])
        scores |= {
            "the weights before": before.scores["the published weights"],
            "the weights of the start": first,
        }
    return Publication(
        version=version,
        weight_digest=weight_digest,
        sent_digest=sent_digest,
        folder=folder,
        adapter=adapter,
        seed=seed,
        dtype=dtype,
        expected=expected_responses(policy, dtype, seed, with_base=before is None or not adapter),
        rows=rows,
        scores=scores,
        surviving=surviving_share(before and before.folder, weights, dtype),
    )


def load(client: VllmClient, publication: Publication, held: Sequence[str]) -> None:
    """Let a server load published weights; ``held`` are the adapters that it has.

    Raises:
        PublicationError: The server refuses them.
    """
    client.post("/abort_requests", {})  # of a collection that was interrupted
    if publication.adapter:
        client.load(
            "/v1/load_lora_adapter",
            {
                "lora_name": publication.adapter,
                "lora_path": str(publication.folder),
                "load_inplace": publication.adapter in held,
            },
        )
        for name in held:
            if name != publication.adapter:
                client.post("/v1/unload_lora_adapter", {"lora_name": name})
    else:
        client.call_worker("reload_weights", weights_path=str(publication.folder))
        client.call_worker("truing_refresh_packed")
    if not client.post("/reset_prefix_cache").get("success"):
        raise PublicationError(
            "the engine keeps keys and values of other weights",
            got="its prefix cache was not dropped: requests are still running",
            expected="no request in flight at a publication",
            remedy="no other program may send requests to this server",
        )


def prove(
    client: VllmClient,
    model: str,
    publication: Publication,
    previous: Expected | None,
    policy: nn.Module | None,
    sampling_params: SamplingParams,
) -> dict[str, Any]:
    """Compare a server with the publication; return the receipt, and set the server's version.

    Args:
        client: of the server.
        model: its name of the base model.
        publication: what it has loaded.
        previous: responses to the same vectors by the weights before, to name a stale layer.
        policy: with the published weights; None to leave out sampled turns, if it has moved on.
        sampling_params: the declared ones.

    Raises:
        PublicationError: It computes something else.
    """
    name = publication.adapter or model
    probe = client.call_worker(
        "truing_probe",
        seed=publication.seed,
        adapter=bool(publication.adapter),
        base=bool(publication.expected.linear),
    )
    receipt: dict[str, Any] = {
        "version": publication.version,
        "trainer": publication.weight_digest,
        "sent": publication.sent_digest,
        "surviving": publication.surviving,
        "layers": compare(probe, publication.expected, publication.dtype, previous),
    }
    tolerance = TOLERANCE[str(publication.dtype).removeprefix("torch.")]
    found = torch.cat([_row_logprobs(client, name, row) for row in publication.rows])
    receipt["rows"] = compare_rows(found, publication.scores, tolerance)
    if policy is not None:
        turns = [
            _turn(client, name, row, sampling_params, (publication.seed, i))
            for i, row in enumerate(publication.rows)
        ]
        receipt["turns"] = compare_turns(policy, publication.rows, turns, sampling_params, tolerance)
    client.post("/update_weight_version", {"new_version": str(publication.version)})
    return receipt


def _row_logprobs(client: VllmClient, name: str, row: Tensor) -> Tensor:
    """Return the engine's log-probabilities of a row's tokens but the first: [T − 1]."""
    answer = client.post(
        GENERATE, {"model": name, "token_ids": row.tolist(), "sampling_params": to_scoring()}
    )
    return read_prompt_logprobs(answer, row)


def _turn(
    client: VllmClient, name: str, row: Tensor, params: SamplingParams, key: tuple[object, ...]
) -> Completion:
    """Return a turn that the engine samples after a row."""
    answer = client.post(
        GENERATE, {"model": name, "token_ids": row.tolist(), "sampling_params": to_vllm(params, key)}
    )
    return read_completion(answer, Request(row, key), params, version=None, weight_digest="")
