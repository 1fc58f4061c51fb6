"""RAT005: Old log-probabilities are those of other rows.

What: The old log-probabilities of a row are, token for token, the new ones of another row. Rows were
shuffled, sorted or gathered on their way, and one of the two streams was not.

Why it is silent: All shapes fit, and each number is one that the policy gave to some token. The median
ratio stays near 1, the mean is far above it, the clip hides the rest. What remains looks like noise.

How it is measured: A row that does not fit itself is laid over every other row with as many numbers, at
tokens at which the two rows differ. A row is exchanged where all of those fit the other one and hardly any
its own; two such rows are needed.

Healthy look-alikes: Rows that are the same, as where one prompt was answered twice alike. Rows that begin
alike: what they share tells nothing. Ratios off 1 after several updates, which fit no other row either.

Fix: Carry a row's id with every tensor that is made for it, and compare ids before they meet. Sort once, or
never; undo a shuffle by its own permutation.

References: https://arxiv.org/abs/1707.06347, docs/notation.md
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from truing.doctor.evidence import Step
from truing.doctor.made import but, made, pulled
from truing.doctor.rule import Rule, drawn
from truing.doctor.verdict import Claim, Verdict
from truing.words import counted

NEAR, DIFFERENT = 1e-3, 1e-2
"""Nats: what counts as the same number, and as another."""

TELLING = 3
"""Tokens that must tell two rows apart: one fits by chance in a few of a thousand pairs."""

LOOKED_AT = 64
"""Rows of one length that are laid over all others: where rows are exchanged, most of them are."""


class Measured(NamedTuple):
    """Rows that are another one's, and the first pair."""

    exchanged: int
    compared: int
    row: int
    other: int
    tokens: int  # of the first row


def measure(step: Step) -> Measured:
    """Look for the owner of each row's old numbers."""
    new_N, old_N = step.tokens["new_logprob"].double(), step.tokens["old_logprob"].double()
    known_N = ~(new_N.isnan() | old_N.isnan())
    alike: dict[int, list[tuple[int, Tensor, Tensor]]] = defaultdict(list)
    for index, row, part in step.slices():
        here_T = known_N[part]
        if row.kept and int(here_T.sum()) >= TELLING:
            alike[int(here_T.sum())].append((index, new_N[part][here_T], old_N[part][here_T]))
    pairs = [pair for rows in alike.values() for pair in _exchanged(rows)]
    compared = sum(len(rows) for rows in alike.values())
    first = pairs[0] if pairs else (0, 0)
    return Measured(len(pairs), compared, *first, step.lengths[first[0]])


def _exchanged(rows: list[tuple[int, Tensor, Tensor]]) -> Iterator[tuple[int, int]]:
    """Rows [K] whose old numbers are another's new ones: index of each, and of the other."""
    new_RK = torch.stack([new_K for _, new_K, _ in rows])
    strangers = [
        (index, new_K, old_K)
        for index, new_K, old_K in rows
        if bool(_apart(new_K, old_K).any()) and int((old_K.abs() > DIFFERENT).sum()) >= TELLING
    ]
    for index, new_K, old_K in strangers[:LOOKED_AT]:
        telling_RK = (new_RK - new_K).abs() > DIFFERENT
        count_R = telling_RK.sum(1)
        fits_R = ((new_RK - old_K).abs() <= NEAR).all(1)
        own_R = (telling_RK & ~_apart(new_K, old_K)).sum(1)  # telling tokens that fit the row itself
        owner_R = fits_R & (count_R >= TELLING) & (own_R <= 0.1 * count_R)
        if owner_R.any():
            yield index, rows[int(owner_R.nonzero()[0])][0]


def _apart(new_K: Tensor, old_K: Tensor) -> Tensor:
    return (new_K - old_K).abs() > DIFFERENT


def judge(found: Measured) -> Iterator[Claim]:
    """Two rows that are each another's."""
    if found.exchanged >= 2:
        yield Claim(
            Verdict.PROVEN,
            f"old log-probabilities of {counted(found.exchanged, 'row')} are those of other rows",
            got=f"those of row {found.row} are the new ones of row {found.other}, at every token",
            expected=f"each row's own, in all {found.compared} rows",
            row=found.row,
            start=0,
            end=found.tokens,
            likely=3,
        )


def example() -> Step:
    """The batch was sorted by length after old log-probabilities were taken."""
    healthy = made(answers=(7,) * 16, rewards=(1.0, 0.0) * 8)
    return pulled(but(healthy, old_logprob=torch.roll(healthy.tokens["old_logprob"], healthy.lengths[0])))


def twins() -> Step:
    """All rows of a group gave one answer, and a second update moved it."""
    step = made(answers=(7,) * 16, rewards=(1.0, 0.0) * 8)
    first_N = step.tokens["old_logprob"][: step.lengths[0]].repeat(16)
    rows = {index: {"inner_step": 1} for index in range(16)}
    streams = {"old_logprob": first_N, "sampler_logprob": first_N, "new_logprob": first_N * 1.1}
    return pulled(but(step, rows=rows, **streams))


RULE = Rule(
    code="RAT005",
    name="rows-permuted",
    kind="E",
    needs=("old_logprob", "new_logprob"),
    taints=("policy",),
    when=drawn,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(twins,),
)
