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

    def allowed(self) -> Tensor | None:
        """The ids that may come next: [V] bool; None where all may."""
        ...

    def take(self, id: int) -> None:
        """Go on by one id."""
        ...


@dataclass(frozen=True, eq=False)
class Request:
    """One answer to draw: the ids so far, the key of its random numbers, and the grammar it keeps to."""

    prompt_ids: Tensor  # [P] int64
    key: tuple[object, ...]
    _: KW_ONLY
    episode: tuple[object, ...] | None = None  # whose earlier turns the ids may continue
    walk: Callable[[], GrammarMatcher] | None = None


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
    walk: GrammarMatcher | None
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    supports: list[Tensor] = field(default_factory=list)

    @classmethod
    def begin(cls, request: Request, contract: SamplingParams) -> "ActiveRow":
        """A row of which nothing is drawn yet."""
        walk = None if request.walk is None else request.walk()
        return cls(uniforms(contract.max_new_tokens, *request.key), walk)

    def is_unfinished(self, contract: SamplingParams) -> bool:
        """Whether another id is to be drawn."""
        return self.ids[-1] not in contract.stop_ids and len(self.ids) < contract.max_new_tokens

    def completion(self, contract: SamplingParams) -> Completion:
        """What was drawn, as a value."""
        stopped = self.ids[-1] in contract.stop_ids
        splits = torch.tensor([0, *(len(ids) for ids in self.supports)]).cumsum(0)
        return Completion(
            torch.tensor(self.ids),
            torch.tensor(self.origins, dtype=torch.uint8),
            torch.tensor(self.logprobs),
            Support(torch.cat(self.supports), splits) if self.supports else None,
            FinishReason.STOP if stopped else FinishReason.LENGTH,
        )


def draw_ids(logits: Tensor, rows: Sequence[ActiveRow], contract: SamplingParams) -> Tensor:
    """Draw one id per row under the contract and record it, its log-probability and its support."""
    longest = max(len(row.ids) for row in rows)
    table = [row.ids + [-1] * (longest - len(row.ids)) for row in rows]
    generated = torch.tensor(table, dtype=torch.long, device=logits.device).view(len(rows), longest)
    allowed = [None if row.walk is None else row.walk.allowed() for row in rows]
    logits = processed_logits(logits, contract, generated, allowed_NV=_table(allowed, logits))
    uniform = torch.stack([row.uniform[len(row.ids)] for row in rows]).to(logits.device)
    ids = draw(logits, uniform)
    logprobs = token_logprobs(logits, ids)
    for row, token, logprob, may, logits_V in zip(
        rows, ids.tolist(), logprobs.tolist(), allowed, logits, strict=True
    ):
        row.ids.append(token)
        row.logprobs.append(logprob)
        row.origins.append(Origin.SAMPLED if may is None or int(may.sum()) > 1 else Origin.FORCED)
        if contract.truncates_support or row.walk is not None:
            row.supports.append(support_ids(logits_V > -torch.inf))
        if row.walk is not None:
            row.walk.take(token)
    return ids


def _table(allowed: Sequence[Tensor | None], logits: Tensor) -> Tensor | None:
    """What the grammars of N rows allow: [N, V] bool; None where they allow everything."""
    if all(may is None for may in allowed):
        return None
    everything = torch.ones(logits.shape[1], dtype=torch.bool)
    return torch.stack([everything if may is None else may for may in allowed]).to(logits.device)
