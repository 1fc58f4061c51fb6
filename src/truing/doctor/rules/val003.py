"""VAL003: The loss pulls at values otherwise than the declared value loss does.

What: The gradient of the loss by each value of the critic is not what half the squared error, averaged over
all tokens that the policy chose and weighed as declared, comes to.

Why it is silent: A critic with the wrong weight still learns, faster or slower, and drags the trunk that it
shares with the policy. With the wrong sign it runs away from what was earned; where the error is small, that
takes long to be seen. No scalar tells its weight.

How it is measured: For each value the gradient of the squared error has a closed form: returns less value,
times the declared weight, over the number of tokens. Before the first update no value has moved, so a clip
around the old values bites nowhere. The recorded gradient is compared token by token.

Healthy look-alikes: Values that are right have no gradient. Of several updates on one batch only the first
is compared. A policy that is masked has its values trained all the same.

Fix: A constant factor is a weight or a denominator: count the tokens of the whole minibatch, before it is
split. Another pattern is a mask: the critic learns at every token that the policy chose.

References: https://arxiv.org/abs/2005.12729, https://arxiv.org/abs/2006.05990
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step
from truing.doctor.rule import Rule, has_critic
from truing.doctor.rules.adv006 import valued
from truing.doctor.verdict import Claim, Verdict

ROUNDING = 1e-3
"""Of the largest expected pull: float32 leaves 1e-5."""

SMALLEST = 1e-4
"""Reward units ÷ tokens: below it, what two forwards of a critic differ by is as large as its error."""


class Measured(NamedTuple):
    """How far the gradient by values is from its closed form."""

    largest: float  # difference
    scale: float  # the largest expected
    factor: float  # got ÷ expected
    tokens: int
    row: int | None
    token: int


def measure(step: Step) -> Measured:
    """As it was compared beside the update."""
    told = step.facts["value"]
    sample, token = told["where"]
    row = next((index for index, each in enumerate(step.rows) if each.sample_id == sample), None)
    return Measured(told["largest"], told["scale"], told["factor"], told["tokens"], row, token)


def judge(found: Measured) -> Iterator[Claim]:
    """Beyond rounding, of the pull itself and of the values it is made of."""
    if found.largest > ROUNDING * found.scale + SMALLEST / max(found.tokens, 1):
        odd = abs(found.factor - 1) > ROUNDING
        how = f"{found.factor:.4g} times as hard" if odd else "otherwise at some tokens"
        yield Claim(
            Verdict.PROVEN,
            f"values are pulled {how} than the declared value loss does",
            got=f"up to {found.largest:.3g} off, over {found.tokens} tokens",
            expected=f"weight × (returns − value) ÷ tokens, at most {found.scale:.3g}",
            row=found.row,
            start=found.token,
            end=found.token + 1,
            specificity=2.5,
        )


def _pulled(factor: float) -> Step:
    told = {"tokens": 33, "scale": 2e-3, "largest": abs(factor - 1) * 2e-3, "factor": factor}
    return changed_step(valued(), facts={"value": told | {"where": ("s0", 5)}})


def example() -> Step:
    """The squared error is not halved, and the weight was meant for half of it."""
    return _pulled(2.0)


def learning() -> Step:
    """A critic that learns as declared."""
    return _pulled(1 + 1e-6)


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
