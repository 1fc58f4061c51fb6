"""VAL003: The gradient of values differs from the declared value loss.

What: The gradient of the loss with respect to each value of the critic differs from that of half the
squared error, averaged over all tokens that the policy chose, with the declared weight.

Why it is silent: A critic with the wrong weight still learns, faster or slower, and disturbs the trunk that
it shares with the policy. With the wrong sign it moves away from the returns; with a small error that takes
long to show. No scalar shows its weight.

How it is measured: For each value the gradient of the squared error has a closed form: returns minus value,
times the declared weight, divided by the number of tokens. Before the first update no value has moved, so a
clip around the old values has no effect; dropout moves them, and then the values of the update itself count,
with the clip. The rule compares the recorded gradient token by token.

Healthy look-alikes: Right values have no gradient. Of several updates on one batch the rule compares the
first alone. With a masked policy its values are trained all the same.

Fix: A constant factor is a weight or a denominator: count the tokens of the whole minibatch, before it is
split. Another pattern is a mask: the critic learns at every token that the policy chose.

References: https://arxiv.org/abs/2005.12729, https://arxiv.org/abs/2006.05990
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.rule import Rule, has_critic
from truing.doctor.rules.adv006 import valued
from truing.doctor.verdict import Claim, Verdict

ROUNDING = 1e-3
"""Of the largest expected gradient: float32 leaves 1e-5."""

SMALLEST = 1e-4
"""Reward units ÷ tokens: below it, the difference of two forwards of a critic is as large as its error."""


class Measured(NamedTuple):
    """Differences between the gradient of values and its closed form."""

    largest: float  # difference
    scale: float  # the largest expected
    factor: float  # got ÷ expected
    tokens: int
    row: int | None
    token: int


def measure(step: Step) -> Measured:
    """Read the comparison recorded with the update."""
    fact = step.facts["value"]
    sample, token = fact["where"]
    row = next((index for index, each in enumerate(step.samples) if each.sample_id == sample), None)
    return Measured(fact["largest"], fact["scale"], fact["factor"], fact["tokens"], row, token)


def judge(measured: Measured) -> Iterator[Claim]:
    """Claim more than rounding of the gradient and of its values."""
    if measured.largest > ROUNDING * measured.scale + SMALLEST / max(measured.tokens, 1):
        scaled = abs(measured.factor - 1) > ROUNDING
        how = f"is {measured.factor:.4g} times that" if scaled else "differs at some tokens from that"
        yield Claim(
            Verdict.PROVEN,
            f"the gradient of values {how} of the declared value loss",
            got=f"up to {measured.largest:.3g} off, over {measured.tokens} tokens",
            expected=f"weight × (returns − value) ÷ tokens, at most {measured.scale:.3g}",
            row=measured.row,
            start=measured.token,
            end=measured.token + 1,
            specificity=2.5,
        )


def _with_factor(factor: float) -> Step:
    fact = {"tokens": 33, "scale": 2e-3, "largest": abs(factor - 1) * 2e-3, "factor": factor}
    return changed_step(valued(), facts={"value": fact | {"where": ("s0", 5)}})


def example() -> Step:
    """The squared error is not halved, although the declared weight is for half of it."""
    return _with_factor(2.0)


def learning() -> Step:
    """A critic that learns as declared."""
    return _with_factor(1 + 1e-6)


RULE = Rule(
    code="VAL003",
    name="value-gradient-not-as-declared",
    kind="M",
    needs=("facts.value",),
    taints=("critic", "policy"),
    applies=has_critic,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(learning,),
)
