"""A publication: the trainer's weights in a folder, and what a server that loads them computes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from peft import PeftModel
from torch import Tensor, nn

from truing.engines.vllm.client import ServerLostError, VllmClient
from truing.engines.vllm.proof.expected_layers import Expected, as_dtype, expected_responses
from truing.engines.vllm.proof.prompts import canary_prompts, canary_rows
from truing.engines.vllm.proof.scores import TOLERANCE, largest, row_scores
from truing.engines.vllm.sent_weights import surviving_share, trained_weights, write_weights
from truing.errors import EngineError, PublicationError
from truing.models.lora import adapter_is_zero, without_adapter
from truing.utils.rng import seed_of

EARLIER = 4
"""Earlier publications that are kept, to recognise stale weights."""


ABORT_SECONDS = 10.0
"""Seconds that a server may take to end aborted requests."""


def weights_name(version: int, weight_digest: str) -> str:
    """Return the name of published weights, which no other trainer's of that number have."""
    return f"{version}-{weight_digest}"


class Past(NamedTuple):
    """An earlier publication."""

    version: int
    expected: Expected
    scores: Tensor


@dataclass(frozen=True, eq=False)
class Publication:
    """Published weights, and what a server that holds them computes."""

    version: int
    weight_digest: str  # the trainer's, of its trained parameters
    sent_digest: str  # of the files
    folder: Path
    adapter: str  # the adapter's name in the engine; "" if all weights are sent
    seed: int  # of the probe vectors, equal in all publications
    dtype: torch.dtype  # of the engine
    expected: Expected
    rows: Sequence[Tensor]
    prompts: Sequence[Tensor]  # of the turns that are sampled
    scores: Tensor  # of the rows
    base_scores: Tensor | None  # of the rows, without the adapter
    earlier: Sequence[Past]  # the newest first
    surviving: float  # share of changed elements that differ in the engine's dtype; NaN if none changed

    @property
    def name(self) -> str:
        """Return the name of its weights in the engine."""
        return weights_name(self.version, self.weight_digest)

    @property
    def tells_adapter(self) -> bool:
        """Return whether scores tell the adapter from its base: not while it is zero, or nearly so."""
        if self.base_scores is None:
            return True
        rounding = TOLERANCE[str(self.dtype).removeprefix("torch.")]
        return largest(self.scores - self.base_scores) > rounding

    def other_weights(self) -> list[tuple[str, Expected]]:
        """Return what an engine may hold instead, by what it is, in words; the newest comes first."""
        return [
            (
                f"the weights of version {past.version}, {age} publication{'s' * (age > 1)} before",
                past.expected,
            )
            for age, past in enumerate(self.earlier, start=1)
        ]

    def other_scores(self) -> dict[str, Tensor]:
        """Return the rows' scores by other weights, by what they are; the likeliest cause comes first."""
        others = {f"the weights of version {past.version}": past.scores for past in self.earlier}
        if self.base_scores is None:
            return others
        return {"the base model without its adapter": self.base_scores, **others}


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
    sent_digest = write_weights(policy, weights, folder)
    has_adapter = isinstance(policy, PeftModel)
    rows = canary_rows(policy)
    scores = row_scores(policy, rows)
    if before is None:
        seed = seed_of("probe", version, weight_digest) % 2**20  # the hash of the indices is in 64 bits
        base_scores, base, earlier = _base_scores(policy, rows, scores), None, ()
    else:
        seed, base_scores = before.seed, before.base_scores
        base = before.expected if has_adapter else None
        earlier = (Past(before.version, before.expected, before.scores), *before.earlier)[:EARLIER]
    return Publication(
        version=version,
        weight_digest=weight_digest,
        sent_digest=sent_digest,
        folder=folder,
        adapter=f"truing-{weights_name(version, weight_digest)}" if has_adapter else "",
        seed=seed,
        dtype=dtype,
        expected=expected_responses(policy, as_dtype(dtype), seed, base),
        rows=rows,
        prompts=canary_prompts(policy),
        scores=scores,
        base_scores=base_scores,
        earlier=earlier,
        surviving=surviving_share(before and before.folder, weights, dtype),
    )


def _base_scores(policy: nn.Module, rows: Sequence[Tensor], scores: Tensor) -> Tensor | None:
    """Return the rows' scores without the adapter, ``scores`` if it is zero; None without an adapter."""
    if not isinstance(policy, PeftModel):
        return None
    if adapter_is_zero(policy):
        return scores
    with without_adapter(policy):
        return row_scores(policy, rows)


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
