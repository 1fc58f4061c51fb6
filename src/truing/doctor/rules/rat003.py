"""RAT003: Ratios are exactly 1 after weights have moved.

What: Several updates are made of one batch, and at the last of them new and old log-probabilities are still
equal, bit for bit, at all tokens. The old ones are taken anew before each update, or are the new ones
themselves.

Why it is silent: A ratio of 1 is right at the first update of a batch, so a plot of it alarms nobody. The
clip never bites: each further epoch is a plain policy gradient on data that is off-policy by then, without
any bound on how far it goes.

How it is measured: Rows whose numbers are those of a second or later update, at tokens with an advantage
that were not certain: all are compared bit for bit. An earlier update of the step must have had tokens to
pull at, and the weights must have moved, by their digest, at a rate that shows in float32. It is proven
where the step before showed the same: one update alone may have been skipped by a scaler.

Healthy look-alikes: Ratios of 1 at the first update, which are required. Tokens of probability 1, before
and after. A learning rate of 1e-9, or of 0 in warm-up. A first minibatch without any signal. A step whose
first update a gradient scaler skipped.

Fix: Take old log-probabilities once per batch, before its first update, or as the sampler recorded them,
and hold them in a tensor of their own. A ratio of 1 at the first update needs no cure, and above all no
noise.

References: https://github.com/huggingface/trl/issues/3452, https://arxiv.org/abs/1707.06347,
docs/control.md
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step, past_step, with_token_gradients
from truing.doctor.rule import Rule, has_policy_loss
from truing.doctor.token_places import Places, places
from truing.doctor.verdict import Claim, Verdict

CERTAIN = 1e-3
"""Nats: what has to come has a log-probability of 0, whatever the weights."""

TOKENS = 64

VISIBLE = 1e-6
"""Learning rate: AdamW moves each weight by about that much, and float32 shows it."""


class Measured(NamedTuple):
    """How many of the later updates' tokens have a ratio of exactly 1, and what should have moved it."""

    compared: Places
    equal: int
    inner_step: int
    earlier: bool  # whether an update before had something to pull at
    moved: bool | None  # by the digest of the weights
    gradient: float
    rate: float
    before: bool  # whether the ratios of the step before were all 1


def measure(step: Step) -> Measured:
    """Count tokens, and those whose ratio is 1, at the last update of the step."""
    new_N, old_N = step.tokens["new_logprob"], step.tokens["old_logprob"]
    inner_N = torch.tensor([row.inner_step if row.kept else -1 for row in step.rows])[step.row_of_token]
    last = int(inner_N.max())
    uncertain_N = new_N.abs() > CERTAIN  # not where it is NaN
    signal_N = step.tokens["policy_mask"] & (step.tokens["advantage"].nan_to_num() != 0) & uncertain_N
    compared_N = signal_N & (inner_N == last) & ~old_N.isnan() & (inner_N > 0)
    # one minibatch alone was the first update's too; of several, one before must have pulled
    alone = {row.inner_step for row in step.rows if row.kept} == {last}
    weights = step.facts.get("weights")
    return Measured(
        places(step, compared_N),
        int((new_N == old_N)[compared_N].sum()),
        last,
        alone or bool((signal_N & (inner_N >= 0) & (inner_N < last)).any()),
        None if weights is None else weights["before"] != weights["after"],
        step.numbers.get("grad/norm", 0.0),
        step.numbers.get("lr", 0.0),
        _frozen_before(step),
    )


def _frozen_before(step: Step) -> bool:
    """Whether the step before, of the same stage, had a gradient and told ratios of 1 alone."""
    if not step.past_of_stage or not step.past_of_stage[-1].numbers.get("grad/norm"):
        return False
    numbers = step.past_of_stage[-1].numbers
    return numbers.get("ratio/min") == numbers.get("ratio/max") == 1


def judge(found: Measured) -> Iterator[Claim]:
    """Not one token of many moved by one bit, though weights did."""
    frozen = found.compared.tokens >= TOKENS and found.equal == found.compared.tokens and found.earlier
    if frozen and found.rate > 0 and (found.moved or found.gradient > 0) and found.moved is not False:
        sure = found.moved and found.gradient > 0 and found.rate >= VISIBLE and found.before
        yield Claim(
            Verdict.PROVEN if sure else Verdict.SUSPECT,
            f"at update {found.inner_step + 1} of the batch all {found.equal} ratios are exactly 1, though"
            " the weights have moved since the first",
            got=f"new = old, bit for bit; gradient norm {found.gradient:.3g}, learning rate {found.rate:.3g}",
            expected="ratios that differ from 1 from the second update on",
            **found.compared.claim_fields,
            specificity=2,
        )


def second() -> Step:
    """Two updates were made of the batch, and the ratios show it."""
    step = example_step(answers=(7,) * 16, rewards=(1.0, 0.0) * 8, setup={"inner_steps": 2, "trainer": "trl"})
    rows = {index: {"inner_step": 1} for index in range(len(step.rows))}
    return with_token_gradients(changed_step(step, rows=rows, new_logprob=step.tokens["new_logprob"] * 1.01))


def example() -> Step:
    """Old log-probabilities are taken anew before each update, step after step."""
    step = second()
    before = past_step(0, grad_norm=1.0, ratio_min=1.0, ratio_max=1.0)
    return with_token_gradients(changed_step(step, old_logprob=step.tokens["new_logprob"], past=[before]))


def still() -> Step:
    """A learning rate of 0: nothing moved, so nothing differs."""
    weights = {"before": "a", "after": "a", "next": "a"}
    return changed_step(example(), numbers={"lr": 0.0}, facts={"weights": weights})


def no_signal_before() -> Step:
    """Two minibatches, and all groups of the first one were of equal reward."""
    rewards = (1.0,) * 8 + (1.0, 0.0) * 4
    step = example_step(answers=(7,) * 16, rewards=rewards, setup={"inner_steps": 2, "trainer": "trl"})
    rows = {index: {"inner_step": index // 8} for index in range(16)}
    return with_token_gradients(changed_step(step, rows=rows, past=example().past))


RULE = Rule(
    code="RAT003",
    name="ratio-frozen",
    kind="E",
    needs=("new_logprob", "old_logprob", "advantage", "policy_mask"),
    taints=("policy",),
    applies=lambda step: (
        any(row.kept and row.inner_step > 0 for row in step.rows)
        or (not step.rows and has_policy_loss(step) and step.setup.inner_steps != 1)
    ),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(second, still, no_signal_before),
)
