"""RAT005: Old log-probabilities belong to other samples.

What: The old log-probabilities of a sample are, token for token, the new ones of another sample. The trainer
shuffled, sorted or gathered samples, and left out one of the two streams.

Why it is silent: All shapes fit, and each number is one that the policy gave to some token. The median
ratio stays near 1, the mean is far above it, and the clip hides the rest, which looks like noise.

How it is measured: The rule compares a sample that does not fit itself with every other sample of as many
numbers. Its old numbers belong to another sample if they fit that sample's new ones at every token, and the
two samples differ at three of them, in old and in new numbers: then neither sample fits itself. That is proof
if the other sample's new numbers are still those of sampling, since then its old ones must equal them. If
weights may have moved, or sampling numbers are missing, samples must differ by a quarter of a nat and form a
cycle: each sample's numbers belong to the next, and the last one's to the first. At least two such samples
are needed.

Healthy look-alikes: Identical samples, as with two equal answers to one prompt. If they are in two
minibatches, one is scored before an optimizer step and the other after it: the old numbers of the moved
sample then equal the new ones of the other. But these are its old numbers too. Samples of a collapsed policy
are nearly equal, and one may move to the place of another; they all move in one direction, and never exchange
places. Samples with an equal start: the shared part shows nothing. Ratios other than 1 after several
optimizer steps, which fit no other sample either.

Fix: Carry a sample's id with every tensor of the sample, and compare ids before combining them. Sort once, or
never; undo a shuffle by its own permutation.

References: https://arxiv.org/abs/1707.06347, docs/notation.md
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_optimizer_steps, with_token_gradients
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.token_places import whole_sample
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count

NEAR, DIFFERENT = 1e-3, 1e-2
"""Nats: the largest difference of equal numbers, and the smallest of different ones."""

FAR = 0.25
"""Nats: a different number even if weights moved, and engines round."""

MIN_DIFFERENT = 3
"""Tokens that must differ between two samples: one fits by chance in a few of a thousand pairs."""

MAX_CANDIDATES = 256
"""Samples of one length in the comparison with all others: an exchange affects most samples."""

PROBED = 8
"""Tokens in the first comparison: hardly any wrong sample fits there."""


class Known(NamedTuple):
    """A sample's K numbers."""

    index: int
    new_K: Tensor
    old_K: Tensor
    still: bool  # whether the new ones equal those of sampling


def _by_length(step: Step) -> list[list[Known]]:
    """Return the numbers of the samples with enough of them, together with others of that many."""
    new_N, old_N = step.tokens["new_logprob"].double(), step.tokens["old_logprob"].double()
    drew_N = step.tokens.get("sampler_logprob", torch.full_like(new_N, torch.nan))
    known_N, still_N = ~(new_N.isnan() | old_N.isnan()), (new_N - drew_N).abs() <= NEAR
    alike: dict[int, list[Known]] = defaultdict(list)
    for index, _, part in step.slices():
        here_T = known_N[part]
        if step.kept[index] and int(here_T.sum()) >= MIN_DIFFERENT:
            still = bool(still_N[part][here_T].all())
            alike[int(here_T.sum())].append(Known(index, new_N[part][here_T], old_N[part][here_T], still))
    return list(alike.values())


def _exchanged(rows: list[Known]) -> Iterator[tuple[int, int]]:
    """Return samples whose old numbers are another's new ones: index of each, and of the other."""
    new_RK, old_RK = torch.stack([row.new_K for row in rows]), torch.stack([row.old_K for row in rows])
    certain_RR, far_RR = (torch.zeros(len(rows), len(rows), dtype=torch.bool) for _ in range(2))
    still_R = torch.tensor([row.still for row in rows])
    candidates = ((new_RK - old_RK).abs() > DIFFERENT).any(1).nonzero()[:MAX_CANDIDATES, 0]
    for r in candidates.tolist():
        fits_M = _fitting(new_RK, old_RK[r])
        apart_MK = torch.minimum((new_RK[fits_M] - new_RK[r]).abs(), (old_RK[fits_M] - old_RK[r]).abs())
        certain_RR[r, fits_M] = still_R[fits_M] & ((apart_MK > DIFFERENT).sum(1) >= MIN_DIFFERENT)
        far_RR[r, fits_M] = (apart_MK > FAR).sum(1) >= MIN_DIFFERENT
    owner_RR = certain_RR | (far_RR & _round(far_RR))
    for r in owner_RR.any(1).nonzero()[:, 0].tolist():
        yield rows[r].index, rows[int(owner_RR[r].nonzero()[0])].index


def _fitting(new_RK: Tensor, old_K: Tensor) -> Tensor:
    """Return samples [M] whose new numbers are these old ones, at every token."""
    few = old_K.abs().topk(min(PROBED, len(old_K))).indices
    some_M = ((new_RK[:, few] - old_K[few]).abs() <= NEAR).all(1).nonzero()[:, 0]
    return some_M[((new_RK[some_M] - old_K).abs() <= NEAR).all(1)]


def _round(owner_RR: Tensor) -> Tensor:
    """Return samples [R] whose chain of owners never ends: it contains a cycle."""
    in_R = owner_RR.any(1)
    while not torch.equal(in_R, left_R := (owner_RR & in_R).any(1)):
        in_R = left_R
    return in_R


def judge(step: Step) -> Iterator[Claim]:
    """Claim two samples with numbers of others."""
    alike = _by_length(step)
    pairs = [pair for rows in alike for pair in _exchanged(rows)]
    if len(pairs) >= 2:
        row, other = pairs[0]
        yield Claim(
            Verdict.PROVEN,
            f"old log-probabilities of {with_count(len(pairs), 'sample')} belong to other samples",
            got=f"those of sample {row} equal the new ones of sample {other}, at every token",
            expected=f"each sample's own, in all {sum(map(len, alike))} samples",
            **whole_sample(step, row),
            specificity=3,
        )


def example() -> Step:
    """The batch is sorted by length after computing old log-probabilities."""
    healthy = example_step(answers=(7,) * 16, rewards=(1.0, 0.0) * 8)
    return with_token_gradients(
        changed_step(healthy, old_logprob=torch.roll(healthy.tokens["old_logprob"], healthy.lengths[0]))
    )


def twins() -> Step:
    """All samples of a group have one answer, and a second optimizer step moved it."""
    step = example_step(answers=(7,) * 16, rewards=(1.0, 0.0) * 8)
    first_N = step.tokens["old_logprob"][: step.lengths[0]].repeat(16)
    second = dict.fromkeys(range(16), 1)
    streams = {"old_logprob": first_N, "sampler_logprob": first_N, "new_logprob": first_N * 1.1}
    return with_token_gradients(with_optimizer_steps(changed_step(step, tokens=streams), second))


def minibatches() -> Step:
    """Of two samples with one answer, one is scored before the first optimizer step, one after it."""
    step = example_step(answers=(7,) * 16, rewards=(1.0, 0.0) * 8, setup={"inner_steps": 2})
    width = step.lengths[0]
    first_N = torch.cat([step.tokens["old_logprob"][: 2 * width].view(2, width)[i // 8] for i in range(16)])
    second = {index: index % 2 for index in range(16)}
    new_N = torch.where(step.sample_of_token % 2 == 1, first_N * 1.1, first_N)
    streams = {"old_logprob": first_N, "sampler_logprob": first_N, "new_logprob": new_N}
    return with_token_gradients(with_optimizer_steps(changed_step(step, tokens=streams), second))


def collapsed() -> Step:
    """A policy with nearly equal samples; an optimizer step moved each to the place of the next."""
    step = example_step(answers=(7,) * 16, rewards=(1.0, 0.0) * 8)
    first_N = step.tokens["old_logprob"][: step.lengths[0]].repeat(16)
    old_N = first_N - 0.05 * step.sample_of_token
    second = dict.fromkeys(range(16), 1)
    streams = {"old_logprob": old_N, "sampler_logprob": old_N, "new_logprob": old_N - 0.05}
    return with_token_gradients(with_optimizer_steps(changed_step(step, tokens=streams), second))


RULE = Rule(
    code="RAT005",
    name="rows-permuted",
    kind="E",
    needs=("old_logprob", "new_logprob"),
    taints=("policy",),
    applies=is_sampled,
    judge=judge,
    example=example,
    lookalikes=(twins, minibatches, collapsed),
)
