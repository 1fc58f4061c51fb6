"""SMP007: Tokens were not drawn from the distribution that is declared.

What: The tokens that a policy is said to have drawn are no fair draw from its distribution under the
sampling contract: another temperature, a nucleus that was cut, penalties, banned stops, a forced prefix, or
a greedy choice.

Why it is silent: Where sampler and trainer report the same raw log-probabilities every ratio is 1, whatever
the tokens were drawn by. No ratio, KL or clip share can see it; what is learnt is the gradient of another
policy than the one that acts.

How it is measured: A bet on each audited token. For a feature of it, such as its log-probability, the bet
pays e^{λ f} over its expectation under the declared distribution; if that is the true one, the wealth is a
fair game, and it exceeds W with a probability of at most 1/W however often one looks. Tokens are chosen
before any reward is known and each is counted once, by the weights that drew it.

Healthy look-alikes: A wealth that goes up and down below 100. Groups that are left out for equal rewards:
their tokens are bet on all the same, for a choice by reward would make wealth out of nothing.

Fix: The feature that won names the suspect: compare it with the sampler's settings, and with its defaults,
which a generation config may bring along. Declare it in `[sampling]`, so that the trainer scores by it too.

References: https://arxiv.org/abs/2210.01948, https://github.com/huggingface/trl/issues/4159,
https://github.com/huggingface/trl/issues/6789
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.oracle.draw_e_process import LAMBDAS, log10_wealth
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict

ODDS = 6.0
"""log10 of the wealth at which it is told: a chance of one in a million, over all of the run."""


class Measured(NamedTuple):
    """log10 of the wealth: of all features together, and of each."""

    together: float
    of: Mapping[str, float]
    tokens: int


def measure(step: Step) -> Measured:
    """What the bets of the stage so far come to."""
    before = [past.facts["audit"] for past in step.past_of_stage if "audit" in past.facts]
    return wealth_of([*before, step.facts["audit"]])


def wealth_of(audits: Sequence[Mapping[str, Any]]) -> Measured:
    """Add up the bets of some updates: facts ``audit``, at least one."""
    wealth = {}
    for feature, strengths in LAMBDAS.items():
        gains = [each["gains"][feature] for each in audits if feature in each["gains"]]
        total = (
            [math.fsum(column) for column in zip(*gains, strict=True)] if gains else [0.0] * len(strengths)
        )
        wealth[feature] = log10_wealth(total)
    largest = max(wealth.values())
    together = largest + math.log10(sum(10 ** (each - largest) for each in wealth.values()) / len(wealth))
    return Measured(together, wealth, sum(each["tokens"] for each in audits))


def judge(found: Measured) -> Iterator[Claim]:
    """A wealth that no fair game makes."""
    if found.together >= ODDS:
        ranked = sorted(found.of, key=lambda name: -found.of[name])
        others = ", ".join(f"{name} 10^{found.of[name]:.0f}" for name in ranked[1:3] if found.of[name] > 1)
        yield Claim(
            Verdict.EVIDENCE,
            f"tokens were not drawn as declared; what tells best is: {ranked[0]}",
            got=f"a wealth of 10^{found.together:.1f} after {found.tokens} tokens"
            + (f" ({others})" if others else ""),
            expected=f"below 10^{ODDS:.0f}",
            log10_odds=found.together,
            specificity=2,
        )


def _bets(**won: float) -> Step:
    gains = {name: [-1.0] * len(each) for name, each in LAMBDAS.items()}
    for name, nats in won.items():
        gains[name][0] = nats
    return changed_step(example_step(), facts={"audit": {"tokens": 450, "gains": gains}})


def example() -> Step:
    """Bets on the temperature won 20 nats, which is 10^8.7 : 1 of one λ."""
    return _bets(temperature=20.0)


def luck() -> Step:
    """Bets that won 7 nats: a wealth of 100 of one λ in twelve."""
    return _bets(temperature=7.0)


RULE = Rule(
    code="SMP007",
    name="not-drawn-as-declared",
    kind="X",
    needs=("facts.audit",),
    taints=("policy",),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(luck,),
)
