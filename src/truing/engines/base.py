"""The engine's interface: requests, completions, and the rows that are being sampled."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from truing.ops.logprobs import token_logprobs
from truing.ops.sampling import draw, processed_logits, support_ids
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


@dataclass
class ActiveRow:
    """A row that is being sampled."""

    uniform: Tensor
    matcher: GrammarMatcher | None
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    supports: list[Tensor] = field(default_factory=list)

    @classmethod
    def begin(cls, request: Request, sampling_params: SamplingParams) -> "ActiveRow":
        """Return a row without generated ids."""
        matcher = None if request.make_matcher is None else request.make_matcher()
        return cls(uniforms(sampling_params.max_new_tokens, *request.rng_key), matcher)

    def is_unfinished(self, sampling_params: SamplingParams) -> bool:
        """Whether the row needs another id."""
        return self.ids[-1] not in sampling_params.stop_ids and len(self.ids) < sampling_params.max_new_tokens

    def to_completion(self, sampling_params: SamplingParams) -> Completion:
        """Return the generated ids as a completion."""
        stopped = self.ids[-1] in sampling_params.stop_ids
        splits = torch.tensor([0, *(len(ids) for ids in self.supports)]).cumsum(0)
        return Completion(
            torch.tensor(self.ids),
            torch.tensor(self.origins, dtype=torch.uint8),
            torch.tensor(self.logprobs),
            Support(torch.cat(self.supports), splits) if self.supports else None,
            FinishReason.STOP if stopped else FinishReason.LENGTH,
        )


def draw_ids(logits: Tensor, rows: Sequence[ActiveRow], sampling_params: SamplingParams) -> Tensor:
    """Sample one id per row with the sampling parameters; record it, its log-probability and its support."""
    longest = max(len(row.ids) for row in rows)
    table = [row.ids + [-1] * (longest - len(row.ids)) for row in rows]
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
