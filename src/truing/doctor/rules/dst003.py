"""DST003: A rank divides the loss by its own samples.

What: The token gradients of each rank are the declared ones times a factor of its own: the denominator of
the loss counts the tokens or samples of the rank, not those of all ranks.

Why it is silent: With as many tokens on each rank, and gradients averaged, nothing changes. With unequal
shares the tokens of a rank with few count more, by a factor that differs from step to step. Each
rank's loss is a right mean of its own samples.

How it is measured: A second implementation computes each token's gradient from the record, as in MSK003.
The quotient of the two is taken over the tokens of each rank. It must be 1. A quotient that is the same for
all tokens of a rank, and not 1, is a denominator of the rank; if it is the share of its tokens or samples, or
one over the number of ranks, it is named. In TRL, where DDP averages gradients, the token gradients are those
of the average.

Healthy look-alikes: Tokens without a gradient, which are not compared. A rank with no sample. A factor of
single samples or tokens: that is a mask or a weight, and no rank's denominator.

Fix: Count tokens over the whole minibatch before it is split, add the counts of all ranks up, pass the sum
to the loss, and sum gradients over ranks: with FSDP, set the divide factor to 1. With DDP, which averages,
multiply the loss by the number of ranks.

References: https://huggingface.co/blog/gradient_accumulation, https://github.com/volcengine/verl/issues/5625,
docs/scale.md
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_ranks
from truing.doctor.oracle.token_gradients import expected_token_gradients, kl_rounding, near_bound
from truing.doctor.rule import Rule, has_gradient
from truing.doctor.token_places import claims_of_first
from truing.doctor.verdict import Claim, Verdict

ROUNDING = 1e-3
"""Of a quotient, and of the largest gradient: float32 leaves 1e-6."""


class Share(NamedTuple):
    """The token gradients of the samples of one rank."""

    rank: int
    tokens: int  # with a gradient, declared and found
    factor: float  # the median of found ÷ declared
    spread: float  # its largest distance from the median
    of_tokens: float  # all tokens with a declared gradient ÷ those of the rank
    of_rows: float  # the same for samples


def measure(step: Step) -> list[list[Share]]:
    """Return the quotients of the found and the declared gradients, by optimizer step and rank."""
    return [_shares(at_step) for _, at_step in step.at_each_optimizer_step()]


def _shares(step: Step) -> list[Share]:
    expected_N, got_N = expected_token_gradients(step), step.stream("token_gradient").nan_to_num()
    known_N = ~near_bound(step)
    least = kl_rounding(step) / ROUNDING
    least = max(least, ROUNDING * max(float(expected_N.abs().max()), 1e-30) if len(expected_N) else 0.0)
    compared_N = known_N & (expected_N.abs() > least) & (got_N.abs() > least)
    rank_N = step.rank_of_sample[step.sample_of_token]
    return [
        _share(rank, compared_N & (rank_N == rank), compared_N, got_N / expected_N, step.sample_of_token)
        for rank in sorted(set(step.rank_of_sample.tolist()) - {-1})
        if bool((compared_N & (rank_N == rank)).any())
    ]


def _share(
    rank: int, own_N: torch.Tensor, all_N: torch.Tensor, quotient_N: torch.Tensor, row_N: torch.Tensor
) -> Share:
    factor = float(quotient_N[own_N].median())
    rows, own_rows = (len(row_N[mask_N].unique()) for mask_N in (all_N, own_N))
    return Share(
        rank,
        int(own_N.sum()),
        factor,
        float((quotient_N[own_N] - factor).abs().max()),
        float(all_N.sum() / own_N.sum()),
        rows / own_rows,
    )


def judge(step: Step) -> Iterator[Claim]:
    """Claim one factor for all tokens of each rank, if it is that of its share, or differs between ranks."""
    yield from claims_of_first([list(_claims(shares)) for shares in measure(step)])


def _claims(shares: list[Share]) -> Iterator[Claim]:
    if not shares or any(each.spread > ROUNDING * abs(each.factor) for each in shares):
        return
    if all(abs(each.factor - 1) <= ROUNDING for each in shares):
        return
    differ = max(each.factor for each in shares) - min(each.factor for each in shares) > ROUNDING
    own = {"tokens": [each.of_tokens for each in shares], "samples": [each.of_rows for each in shares]}
    ranks = len(shares)
    for what, of in own.items():
        # gradients are summed over ranks, or the ranks' own means are averaged
        if ranks > 1 and (_fit(shares, of) or _fit(shares, [share / ranks for share in of])):
            yield _claim(f"each rank divides its loss by its own {what}, not by those of all ranks", shares)
            return
    if ranks > 1 and _fit(shares, [1 / ranks] * ranks):
        yield _claim(
            f"the loss is divided by the tokens or samples of all ranks, and once more by the {ranks} ranks",
            shares,
        )
    elif differ:
        yield _claim("the token gradients of each rank have a factor of their own", shares)


def _fit(shares: list[Share], factors: Sequence[float]) -> bool:
    """Return whether the ranks have these factors."""
    pairs = zip(shares, factors, strict=True)
    return all(abs(share.factor / factor - 1) <= ROUNDING for share, factor in pairs)


def _claim(what: str, shares: list[Share]) -> Claim:
    factors = ", ".join(f"rank {each.rank}: {each.factor:.5g}" for each in shares)
    return Claim(
        Verdict.PROVEN,
        what,
        got=f"the declared gradient times a factor ({factors})",
        expected="1 on every rank: denominators count all ranks",
        specificity=3,
    )


def _scaled(*factors: float) -> Step:
    """Return a step whose first rank has the first two samples, with each rank's gradient times a factor."""
    step = example_step()
    names = [row.sample_id for row in step.samples]
    rows = [{"of_rank": [names[:2], names[2:]]} | NONE]
    factor_N = torch.tensor([factors[index >= 2] for index in range(len(names))])[step.sample_of_token]
    facts = {"ranks": {"state": {}, "norms": [], "rows": rows}}
    return with_ranks(
        changed_step(step, facts=facts, token_gradient=step.tokens["token_gradient"] * factor_N),
        [int(index >= 2) for index in range(len(names))],
    )


NONE = {"due": 8, "missing": [], "missing_count": 0, "idle": [], "twice": [], "twice_count": 0}


def example() -> Step:
    """Two of eight samples are on the first rank, and each rank divides by its own."""
    return _scaled(8 / 2, 8 / 6)


def of_all() -> Step:
    """Both divide by the samples of all."""
    return _scaled(1, 1)


RULE = Rule(
    code="DST003",
    name="denominator-of-a-rank",
    kind="M",
    needs=("facts.ranks", "token_gradient"),
    taints=("sft", "policy"),
    applies=lambda step: "ranks" in step.facts and has_gradient(step),
    judge=judge,
    example=example,
    lookalikes=(of_all,),
)
