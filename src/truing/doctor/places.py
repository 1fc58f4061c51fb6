"""Tokens that a rule points at: the first stretch of them, and how many there are."""

from dataclasses import dataclass

import torch
from torch import Tensor

from truing.doctor.evidence import Step
from truing.words import counted


@dataclass(frozen=True)
class Places:
    """Some tokens of a step; where there are none, ``tokens`` is 0."""

    tokens: int
    rows: int
    row: int  # of the first stretch
    start: int  # within its row
    end: int
    looked_at: int  # tokens that were compared

    def __bool__(self) -> bool:
        return self.tokens > 0

    def __str__(self) -> str:
        count = f"{counted(self.tokens, 'token')} of {counted(self.rows, 'row')}"
        return f"{count}, the first at row {self.row}, token {self.start}"


def places(step: Step, wrong_N: Tensor, looked_at: int | None = None) -> Places:
    """Where ``wrong_N`` [N] bool is true."""
    found = wrong_N.nonzero()[:, 0]
    total = len(wrong_N) if looked_at is None else looked_at
    if not len(found):
        return Places(0, 0, 0, 0, 0, total)
    first = int(found[0])
    row = int(step.row[first])
    end = step.starts[row] + step.lengths[row]
    length = int(torch.cumprod(wrong_N[first:end].long(), 0).sum())
    start = first - step.starts[row]
    return Places(len(found), len(step.row[found].unique()), row, start, start + length, total)
