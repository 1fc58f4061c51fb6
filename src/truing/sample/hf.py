"""The in-process sampler: batched generation under the sampling contract.

Each distinct prompt is prefilled once and its cache is shared out to the rows that continue it; rows
that finish leave the batch. The log-probability of each token is recorded as it was drawn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from truing.contract import SamplingContract
from truing.errors import DataError
from truing.models.score import autocast
from truing.ops.logprobs import token_logprobs
from truing.ops.sampling import contract_logits, draw, support_ids
from truing.rng import uniforms
from truing.types import FinishReason, Origin, Support

PAD_LIMIT = 1.5
"""Longest prompt of a part ÷ its shortest: more parts compute fewer pads, and decode fewer rows at once."""


class Walk(Protocol):
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
    walk: Callable[[], Walk] | None = None


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
class _Row:
    """A row while it is being drawn."""

    prompt: int
    uniform: Tensor
    walk: Walk | None
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    supports: list[Tensor] = field(default_factory=list)

    def completion(self, contract: SamplingContract) -> Completion:
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


class HFSampler:
    """Draws with a transformers model. ``version`` and ``weight_digest`` say which weights it holds."""

    def __init__(self, model: PreTrainedModel, *, context_length: int, max_rows: int = 128) -> None:
        self.model = model
        self.context_length = context_length
        self.max_rows = max_rows
        self.version = 0
        self.weight_digest = ""

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request], contract: SamplingContract) -> list[Completion]:
        """Draw one completion per request, in their order."""
        for request in requests:
            room = self.context_length - contract.max_new_tokens
            if len(request.prompt_ids) > room:
                raise DataError(
                    "a prompt is longer than the context allows",
                    got=f"{len(request.prompt_ids)} tokens",
                    expected=f"≤ {room} (context {self.context_length} − max_new_tokens)",
                    remedy="shorten the prompt or lower sampling.max_new_tokens; nothing is cut in silence",
                )
        self.model.eval()
        completions: dict[int, Completion] = {}
        for part in _parts(requests, self.max_rows):
            drawn = self._generate([requests[i] for i in part], contract)
            completions |= zip(part, drawn, strict=True)
        return [completions[i] for i in range(len(requests))]

    def _generate(self, requests: Sequence[Request], contract: SamplingContract) -> list[Completion]:
        prompts = list({tuple(request.prompt_ids.tolist()): None for request in requests})
        number = {prompt: i for i, prompt in enumerate(prompts)}
        rows = [
            _Row(
                number[tuple(r.prompt_ids.tolist())],
                uniforms(contract.max_new_tokens, *r.key),
                None if r.walk is None else r.walk(),
            )
            for r in requests
        ]
        cache, mask, logits = self._prefill(prompts)
        of_row = torch.tensor([row.prompt for row in rows], device=mask.device)
        cache.batch_select_indices(of_row)
        mask, logits = mask[of_row], logits[of_row]
        live = rows
        while True:
            drawn = _draw(logits, live, contract)
            going = [
                i
                for i, row in enumerate(live)
                if row.ids[-1] not in contract.stop_ids and len(row.ids) < contract.max_new_tokens
            ]
            if not going:
                return [row.completion(contract) for row in rows]
            if len(going) < len(live):
                keep = torch.tensor(going, device=mask.device)
                cache.batch_select_indices(keep)
                mask, drawn, live = mask[keep], drawn[keep], [live[i] for i in going]
            mask = torch.cat([mask, mask.new_ones(len(live), 1)], dim=1)
            logits = self._forward(drawn[:, None], mask, cache)

    def _prefill(self, prompts: Sequence[tuple[int, ...]]) -> tuple[DynamicCache, Tensor, Tensor]:
        """Cache, attention mask and next-token logits of the distinct prompts, padded on the left."""
        longest = max(map(len, prompts))
        device = self.model.device
        ids = torch.zeros(len(prompts), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for i, prompt in enumerate(prompts):
            ids[i, longest - len(prompt) :] = torch.tensor(prompt)
            mask[i, longest - len(prompt) :] = 1
        ids, mask, cache = ids.to(device), mask.to(device), DynamicCache(config=self.model.config)
        return cache, mask, self._forward(ids, mask, cache)

    def _forward(self, ids: Tensor, mask: Tensor, cache: DynamicCache) -> Tensor:
        """Logits of the last position; positions count the tokens, not the pads."""
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        with autocast(self.model.device):
            out = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                logits_to_keep=1,
            )
        return out.logits[:, -1]


def _parts(requests: Sequence[Request], max_rows: int) -> list[list[int]]:
    """Requests to draw together: prompts of about one length, so that few pads are computed."""
    order = sorted(range(len(requests)), key=lambda i: len(requests[i].prompt_ids))
    parts: list[list[int]] = []
    for i in order:
        length = len(requests[i].prompt_ids)
        if (
            parts
            and len(parts[-1]) < max_rows
            and length <= PAD_LIMIT * len(requests[parts[-1][0]].prompt_ids)
        ):
            parts[-1].append(i)
        else:
            parts.append([i])
    return parts


def _draw(logits: Tensor, rows: Sequence[_Row], contract: SamplingContract) -> Tensor:
    """Draw one id per row under the contract and record it, its log-probability and its support."""
    step = len(rows[0].ids)
    generated = torch.tensor([row.ids for row in rows], dtype=torch.long, device=logits.device).view(
        len(rows), step
    )
    allowed = [None if row.walk is None else row.walk.allowed() for row in rows]
    logits = contract_logits(logits, contract, generated, allowed_NV=_table(allowed, logits))
    uniform = torch.stack([row.uniform[step] for row in rows]).to(logits.device)
    ids = draw(logits, uniform)
    logprobs = token_logprobs(logits, ids)
    for row, token, logprob, may, kept in zip(
        rows, ids.tolist(), logprobs.tolist(), allowed, logits > -torch.inf, strict=True
    ):
        row.ids.append(token)
        row.logprobs.append(logprob)
        row.origins.append(Origin.SAMPLED if may is None or int(may.sum()) > 1 else Origin.FORCED)
        if contract.truncates or row.walk is not None:
            row.supports.append(support_ids(kept))
        if row.walk is not None:
            row.walk.take(token)
    return ids


def _table(allowed: Sequence[Tensor | None], logits: Tensor) -> Tensor | None:
    """What the grammars of N rows allow: [N, V] bool; None where they allow everything."""
    if all(may is None for may in allowed):
        return None
    everything = torch.ones(logits.shape[1], dtype=torch.bool)
    return torch.stack([everything if may is None else may for may in allowed]).to(logits.device)
