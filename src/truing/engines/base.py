"""The interface of an engine: requests in, completions out, and the batch that is being sampled.

An engine samples turns with the policy's weights. It gets ids and returns ids with log-probabilities under
the declared sampling parameters, and it knows the version of its weights. ``engines/local/`` samples in this
process and is the reference; ``engines/vllm/`` samples with vLLM.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from truing.errors import DataError
from truing.ops.logprobs import token_logprobs
from truing.ops.sampling import draw, processed_logits, support_ids
from truing.types.rollout import hash_of_ids
from truing.types.sampling_params import SamplingParams
from truing.types.status import FinishReason
from truing.types.token import Origin, Support
from truing.utils.rng import uniforms


class GrammarMatcher(Protocol):
    """The state of one turn within a grammar."""

    def allowed_ids(self) -> Tensor | None:
        """Return the ids that may come next: [V] bool; None if every id may."""
        ...

    def accept_token(self, id: int) -> None:
        """Advance by one id."""
        ...


@dataclass(frozen=True, eq=False)
class Request:
    """One turn to sample: its prompt, the key of its random numbers, and its grammar."""

    prompt_ids: Tensor  # [P] int64
    rng_key: tuple[object, ...]
    _: KW_ONLY
    episode: tuple[object, ...] | None = None  # the episode whose cached turns the ids may continue
    make_matcher: Callable[[], GrammarMatcher] | None = None


@dataclass(frozen=True, eq=False)
class Completion:
    """One sampled turn; a stop token is its last id.

    An id is FORCED if the grammar allows no other: its log-probability is 0; the policy did not choose it.
    Penalties and ``min_new_tokens`` count it like any generated id.
    """

    token_ids: Tensor  # [L] int64
    origin: Tensor  # [L] uint8, SAMPLED or FORCED
    logprob: Tensor  # [L] float32, NaN where nothing was sampled
    support: Support | None
    finish_reason: FinishReason
    version: int = 0  # of the weights; 0 for turns that no policy sampled
    weight_digest: str = ""
    # [P + L, layers, K] int16, the experts that each layer selected for the ids of prompt and turn; −1 where
    # nothing is recorded. None for a dense model, or if the engine returns no routes
    routes: Tensor | None = None
    prompt_hash: str = ""  # of the ids that were read before the turn


class RunningBatch(Protocol):
    """Turns that are being sampled together; requests join and leave at any time."""

    @property
    def unfinished(self) -> int:
        """Requests that were added and are not finished."""
        ...

    def add(self, requests: Sequence[Request]) -> None:
        """Add requests; similar prompts that come together share more computation."""
        ...

    def step(self) -> list[tuple[Request, Completion]]:
        """Sample further, and return the turns that finished; it may wait some milliseconds."""
        ...

    def release(self, episode: tuple[object, ...]) -> None:
        """Free what is cached for an episode that has ended."""
        ...


Receipt = Mapping[str, Any]
"""What the proof of a publication compared; {} if nothing was compared."""

Publish = Callable[[], Receipt]
"""Gives an engine weights that were copied before."""


def joint_receipt(receipts: Sequence[Receipt]) -> Receipt:
    """Return the receipt of several servers that hold one publication: the one that differs most."""
    compared = [receipt for receipt in receipts if receipt]
    if not compared:
        return {}
    worst = max(compared, key=lambda receipt: receipt["rows"]["largest"])
    return {**worst, "servers": sum(receipt["servers"] for receipt in compared)}


Draws = Literal["inversion", "race", "unknown"]
"""How ids follow from a request's key: by inversion at its numbers (``utils/rng.py``), or by a race with
noise that its seed gives (``doctor/oracle/draw_race.py``)."""


class Engine(Protocol):
    """What samples turns."""

    draws: Draws

    @property
    def returns_routes(self) -> bool:
        """Whether turns have the experts that their tokens took, in a mixture of experts."""
        ...

    context_length: int
    version: int  # of its weights
    weight_digest: str

    def publish(self, policy: nn.Module, version: int, weight_digest: str) -> Mapping[str, Any]:
        """Give the engine the policy's weights; return the receipt, what was compared, {} if nothing was.

        Raises:
            PublicationError: The engine holds other weights.
        """
        ...

    def prepare(self, policy: nn.Module, version: int, weight_digest: str) -> Publish:
        """Return what publishes the weights as they are now.

        A server's are copied, while the policy may move on. The in-process engine reads them when that is
        called, before the next optimizer step.
        """
        ...

    def running_batch(self, sampling_params: SamplingParams) -> AbstractContextManager[RunningBatch]:
        """Return a batch that samples with these parameters. It ends with what is unfinished."""
        ...

    def reset_prefix_cache(self) -> None:
        """Free the keys and values of all prompts and turns, unless a publication does."""
        ...

    def release_memory(self) -> None:
        """Free the memory that only sampling needs, until the next publication."""
        ...

    def take_incidents(self) -> list[str]:
        """Return what went wrong and was mended since the last call, a sentence each."""
        ...

    def close(self) -> None:
        """Stop what was started."""
        ...


def generate(
    engine: Engine, requests: Sequence[Request], sampling_params: SamplingParams
) -> list[Completion]:
    """Return one completion per request, in their order."""
    done: dict[int, Completion] = {}
    with engine.running_batch(sampling_params) as batch:
        batch.add(requests)
        while batch.unfinished:
            done |= {id(request): completion for request, completion in batch.step()}
    return [done[id(request)] for request in requests]


def check_prompt_length(request: Request, sampling_params: SamplingParams, context_length: int) -> None:
    """Raise if a prompt leaves no room for its turn."""
    limit = sampling_params.max_prompt_length(context_length)
    if len(request.prompt_ids) > limit:
        raise DataError(
            "a prompt is longer than the context allows",
            got=f"{len(request.prompt_ids)} tokens",
            expected=f"≤ {limit} (context {context_length} − max_new_tokens)",
            remedy="set episode.max_prompt_tokens, shorten it, or lower sampling.max_new_tokens;"
            " prompts are never truncated silently",
        )


@dataclass
class ActiveRow:
    """A row that is being sampled."""

    uniform: Tensor
    matcher: GrammarMatcher | None
    prompt_hash: str
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    supports: list[Tensor] = field(default_factory=list)

    @classmethod
    def begin(cls, request: Request, sampling_params: SamplingParams) -> "ActiveRow":
        """Return a row without generated ids."""
        matcher = None if request.make_matcher is None else request.make_matcher()
        uniform = uniforms(sampling_params.max_new_tokens, *request.rng_key)
        return cls(uniform, matcher, hash_of_ids(request.prompt_ids))

    def is_unfinished(self, sampling_params: SamplingParams) -> bool:
        """Whether the row needs another id."""
        return self.ids[-1] not in sampling_params.stop_ids and len(self.ids) < sampling_params.max_new_tokens

    def to_completion(
        self, sampling_params: SamplingParams, version: int = 0, weight_digest: str = ""
    ) -> Completion:
        """Return the generated ids as a completion by weights of this version."""
        stopped = self.ids[-1] in sampling_params.stop_ids
        splits = torch.tensor([0, *(len(ids) for ids in self.supports)]).cumsum(0)
        return Completion(
            torch.tensor(self.ids),
            torch.tensor(self.origins, dtype=torch.uint8),
            torch.tensor(self.logprobs),
            Support(torch.cat(self.supports), splits) if self.supports else None,
            FinishReason.STOP if stopped else FinishReason.LENGTH,
            version,
            weight_digest,
            prompt_hash=self.prompt_hash,
        )


def draw_ids(logits: Tensor, rows: Sequence[ActiveRow], sampling_params: SamplingParams) -> Tensor:
    """Sample one id per row with the sampling parameters; record it, its log-probability and its support."""
    longest = max(len(row.ids) for row in rows) if sampling_params.counts_generated else 0
    table = [row.ids[:longest] + [-1] * (longest - len(row.ids)) for row in rows]
    generated = torch.tensor(table, dtype=torch.long, device=logits.device).view(len(rows), longest)
    allowed = [None if row.matcher is None else row.matcher.allowed_ids() for row in rows]
    logits = processed_logits(logits, sampling_params, generated, allowed_NV=_table(allowed, logits))
    uniform = torch.stack([row.uniform[len(row.ids)] for row in rows]).to(logits.device)
    ids = draw(logits, uniform)
    logprobs = token_logprobs(logits, ids)
    for row, token, logprob, allowed_V, logits_V in zip(
        rows, ids.tolist(), logprobs.tolist(), allowed, logits, strict=True
    ):
        row.ids.append(token)
        row.logprobs.append(logprob)
        row.origins.append(Origin.SAMPLED if allowed_V is None or int(allowed_V.sum()) > 1 else Origin.FORCED)
        if sampling_params.truncates_support or row.matcher is not None:
            row.supports.append(support_ids(logits_V > -torch.inf))
        if row.matcher is not None:
            row.matcher.accept_token(token)
    return ids


def _table(allowed: Sequence[Tensor | None], logits: Tensor) -> Tensor | None:
    """Return the ids that the grammars of N rows allow: [N, V] bool; None if they allow every id."""
    if all(allowed_V is None for allowed_V in allowed):
        return None
    everything = torch.ones(logits.shape[1], dtype=torch.bool)
    return torch.stack([everything if allowed_V is None else allowed_V for allowed_V in allowed]).to(
        logits.device
    )
