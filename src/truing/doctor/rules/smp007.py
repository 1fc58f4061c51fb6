"""SMP007: Sampled tokens do not follow the declared distribution.

What: The sampled tokens are not a fair draw from the policy's distribution under the declared sampling
parameters. The cause is another temperature, a truncated nucleus, penalties, banned stops, a forced prefix,
or a greedy choice. TRL's log-probabilities leave out top_k, top_p, min_p, penalties and `generation_kwargs`:
where its arguments set one, it is named as the cause, or as a fact while the tokens do not show it.

Why it is silent: If sampler and trainer report the same raw log-probabilities every ratio is 1, whatever
distribution the tokens come from. No ratio, KL or clip share shows it; the gradient is that of another
policy than the acting one.

How it is measured: A bet on each audited token. For a feature of it, such as its log-probability, the bet
pays e^{λ f} over its expectation under the declared distribution. If that is the true one, the wealth is a
fair game, and it exceeds W with a probability of at most 1/W, for any number of checks. The audit chooses
tokens before any reward is known, and counts each once, by the weights that sampled it.

Healthy look-alikes: A wealth that varies below 100. Groups that are left out for equal rewards: their
tokens are in the bets all the same, since a choice by reward would create wealth without a fault.

Fix: The winning feature names the suspect: compare it with the sampler's settings, and with its defaults
from a generation config. Declare it in `[sampling]`, so that the trainer scores with it too.

References: https://arxiv.org/abs/2210.01948, https://github.com/huggingface/trl/issues/4159,
https://github.com/huggingface/trl/issues/6789
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.history import Dropped, audits_of
from truing.doctor.oracle.draw_e_process import LAMBDAS, log10_wealth
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict

ODDS = 6.0
"""log10 of the wealth for a claim: a probability of one in a million, over the whole run."""

TRL_REMEDY = (
    "compare the sampler with trainer.args: another temperature, weights that are not synced, or settings of"
    " the model's generation_config that it adds"
)
"""What to look at if no argument of TRL's is the cause."""


class Measured(NamedTuple):
    """log10 of the wealth: of all features together, and of each."""

    together: float
    of: Mapping[str, float]
    tokens: int
    left_out: tuple[str, ...] = ()  # declared settings that the trained log-probabilities leave out
    trl: bool = False


def measure(step: Step) -> Measured:
    """Return the wealth of the stage so far."""
    before = audits_of(step.past_of_stage, step.dropped.get(step.stage, Dropped()))
    measured = wealth_of([*before, step.facts["audit"]])
    return measured._replace(left_out=step.setup.left_out, trl=step.setup.trainer == "trl")


def wealth_of(audits: Sequence[Mapping[str, Any]]) -> Measured:
    """Return the wealth of some steps: facts ``audit``, at least one."""
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


def judge(step: Step) -> Iterator[Claim]:
    """Claim a wealth beyond that of a fair game; a setting that is left out is the cause, and a fact."""
    measured = measure(step)
    wealth = f"a wealth of 10^{measured.together:.1f} after {measured.tokens} tokens"
    if measured.left_out:
        yield _left_out(measured, wealth)
    elif measured.together >= ODDS:
        ranked = sorted(measured.of, key=lambda name: -measured.of[name])
        others = ", ".join(
            f"{name} 10^{measured.of[name]:.0f}" for name in ranked[1:3] if measured.of[name] > 1
        )
        yield Claim(
            Verdict.EVIDENCE,
            f"tokens do not follow the declared distribution; strongest feature: {ranked[0]}",
            got=wealth + (f" ({others})" if others else ""),
            expected=f"below 10^{ODDS:.0f}",
            remedy=TRL_REMEDY if measured.trl else "",
            log10_odds=measured.together,
            specificity=2,
        )


def _left_out(measured: Measured, wealth: str) -> Claim:
    """Return the claim of a declared setting that only the sampler applies."""
    settings, evident = ", ".join(measured.left_out), measured.together >= ODDS
    return Claim(
        Verdict.EVIDENCE if evident else Verdict.FACT,
        f"tokens are sampled with {settings} of trainer.args, and the log-probabilities that TRL trains leave"
        " that out: they are not those of the sampling distribution",
        got=wealth,
        expected=f"below 10^{ODDS:.0f}" if evident else "",
        remedy=f"leave {settings} out of the config: by default TRL samples from the distribution that it"
        " trains, at args.temperature; truing.trl trains log-probabilities of the cut distribution",
        log10_odds=measured.together if evident else None,
        specificity=2.5,
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
    applies=lambda step: step.setup.algo != "sft",
    judge=judge,
    example=example,
    lookalikes=(luck,),
)
