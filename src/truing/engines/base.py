"""What is asked of a sampler, what it answers, and how one id per row is drawn and recorded."""

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
    """A turn on its way through a grammar."""

    def allowed_ids(self) -> Tensor | None:
        """The ids that may come next: [V] bool; None where all may."""
        ...

    def accept_token(self, id: int) -> None:
        """Go on by one id."""
        ...


@dataclass(frozen=True, eq=False)
class Request:
    """One answer to draw: the ids so far, the key of its random numbers, and the grammar it keeps to."""

    prompt_ids: Tensor  # [P] int64
    rng_key: tuple[object, ...]
    _: KW_ONLY
    episode: tuple[object, ...] | None = None  # whose earlier turns the ids may continue
    make_matcher: Callable[[], GrammarMatcher] | None = None


@dataclass(frozen=True, eq=False)
class Completion:
    """One drawn answer; the stop token, where there is one, is its last id.

    Where a grammar alone left one id, that is FORCED: of log-probability 0, and no choice of the policy.
    To penalties and ``min_new_tokens`` it is a generated id like any other.
    """

    token_ids: Tensor  # [L] int64
    origin: Tensor  # [L] uint8, SAMPLED or FORCED
    logprob: Tensor  # [L] float32, NaN where nothing was drawn
    support: Support | None
    finish_reason: FinishReason


@dataclass
class ActiveRow:
    """A row while it is being drawn."""

    uniform: Tensor
    matcher: GrammarMatcher | None
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    supports: list[Tensor] = field(default_factory=list)

    @classmethod
    def begin(cls, request: Request, sampling_params: SamplingParams) -> "ActiveRow":
        """A row of which nothing is drawn yet."""
        walk = None if request.make_matcher is None else request.make_matcher()
        return cls(uniforms(sampling_params.max_new_tokens, *request.rng_key), walk)

    def is_unfinished(self, sampling_params: SamplingParams) -> bool:
        """Whether another id is to be drawn."""
        return self.ids[-1] not in sampling_params.stop_ids and len(self.ids) < sampling_params.max_new_tokens

    def to_completion(self, sampling_params: SamplingParams) -> Completion:
        """What was drawn, as a value."""
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
    """Draw one id per row under the contract and record it, its log-probability and its support."""
    longest = max(len(row.ids) for row in rows)
    table = [row.ids + [-1] * (longest - len(row.ids)) for row in rows]
    generated = torch.tensor(table, dtype=torch.long, device=logits.device).view(len(rows), longest)
    allowed = [None if row.matcher is None else row.matcher.allowed_ids() for row in rows]
    logits = processed_logits(logits, sampling_params, generated, allowed_NV=_table(allowed, logits))
    uniform = torch.stack([row.uniform[len(row.ids)] for row in rows]).to(logits.device)
    ids = draw(logits, uniform)
    logprobs = token_logprobs(logits, ids)
    for row, token, logprob, may, logits_V in zip(
        rows, ids.tolist(), logprobs.tolist(), allowed, logits, strict=True
    ):
        row.ids.append(token)
        row.logprobs.append(logprob)
        row.origins.append(Origin.SAMPLED if may is None or int(may.sum()) > 1 else Origin.FORCED)
        if sampling_params.truncates_support or row.matcher is not None:
            row.supports.append(support_ids(logits_V > -torch.inf))
        if row.matcher is not None:
            row.matcher.accept_token(token)
    return ids


def _table(allowed: Sequence[Tensor | None], logits: Tensor) -> Tensor | None:
    """What the grammars of N rows allow: [N, V] bool; None where they allow everything."""
    if all(may is None for may in allowed):
        return None
    everything = torch.ones(logits.shape[1], dtype=torch.bool)
    return torch.stack([everything if may is None else may for may in allowed]).to(logits.device)
