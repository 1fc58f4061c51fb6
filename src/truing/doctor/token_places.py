"""The places of a claim's tokens, and their number."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import torch
from torch import Tensor

from truing.doctor.evidence import Step
from truing.doctor.verdict import Claim, Span
from truing.utils.format import with_count

MAX_SPANS = 1_000
"""The most stretches in a claim."""


class ClaimFields(TypedDict, total=False):
    """The fields of a claim that say where it is."""

    row: int
    start: int
    end: int
    spans: tuple[Span, ...]


def whole_sample(step: Step, row: int) -> ClaimFields:
    """Return the place of all tokens of a sample."""
    return {"row": row, "start": 0, "end": step.lengths[row]}


def optimizer_steps_text(of_steps: Sequence[object]) -> str:
    """Return in which optimizer steps something is; empty with one step. ``of_steps`` has it, or is empty."""
    numbers = [str(number) for number, found in enumerate(of_steps, 1) if found]
    if len(of_steps) == 1 or not numbers:
        return ""
    if len(numbers) == len(of_steps):
        return f", in each of {len(of_steps)} optimizer steps"
    listed = numbers[0] if len(numbers) == 1 else f"{', '.join(numbers[:-1])} and {numbers[-1]}"
    return f", in optimizer step{'s' * (len(numbers) > 1)} {listed} of {len(of_steps)}"


def claims_of_first(claims: Sequence[Sequence[Claim]]) -> Iterator[Claim]:
    """Yield the claims of the first optimizer step with one; they say which optimizer steps have some."""
    where = optimizer_steps_text(claims)
    for claim in next(filter(None, claims), []):
        yield replace(claim, what=claim.what + where)


@dataclass(frozen=True)
class Places:
    """Some tokens of a step; ``tokens`` is 0 without any."""

    tokens: int
    rows: int
    compared: int  # compared tokens
    spans: tuple[Span, ...]  # the first stretches, in the order of the samples

    def __bool__(self) -> bool:
        return self.tokens > 0

    def __str__(self) -> str:
        count = f"{with_count(self.tokens, 'token')} of {with_count(self.rows, 'sample')}"
        return f"{count}, the first at sample {self.row}, token {self.start}"

    @property
    def row(self) -> int:
        """Return the sample of the first stretch."""
        return self.spans[0].row

    @property
    def start(self) -> int:
        """Return the start of the first stretch, within its sample."""
        return self.spans[0].start

    @property
    def claim_fields(self) -> ClaimFields:
        """Return the place fields of a claim; empty without tokens."""
        if not self:
            return {}
        first = self.spans[0]
        return {"row": first.row, "start": first.start, "end": first.end, "spans": self.spans}


def places(step: Step, wrong_N: Tensor, compared: int | None = None) -> Places:
    """Return the places where ``wrong_N`` [N] bool is true."""
    total = len(wrong_N) if compared is None else compared
    rows = len(step.sample_of_token[wrong_N].unique())
    return Places(int(wrong_N.sum()), rows, total, tuple(spans_of(step, wrong_N)[:MAX_SPANS]))


def spans_of(step: Step, wrong_N: Tensor) -> list[Span]:
    """Return each stretch of true neighbours in one sample."""
    before_N = torch.roll(wrong_N, 1) & (torch.roll(step.sample_of_token, 1) == step.sample_of_token)
    after_N = torch.roll(wrong_N, -1) & (torch.roll(step.sample_of_token, -1) == step.sample_of_token)
    if len(wrong_N):  # rolling wraps around
        before_N[0] = after_N[-1] = False
    starts, lasts = ((wrong_N & ~each_N).nonzero()[:, 0] for each_N in (before_N, after_N))
    offsets = torch.tensor(step.starts, dtype=torch.long)
    rows = step.sample_of_token[starts]
    firsts = (starts - offsets[rows]).tolist()
    ends = (lasts + 1 - offsets[rows]).tolist()
    return [Span(*each) for each in zip(rows.tolist(), firsts, ends, strict=True)]
