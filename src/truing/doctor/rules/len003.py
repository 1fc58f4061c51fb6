"""LEN003: Half of all attempts are cut off.

What: For three updates in a row, half of the attempts or more ended at a limit and not by themselves.

It is stated as a FACT: a limit that is low, or a policy that has not learned to stop yet, is no fault of the
code.

Why it is silent: A cut attempt has a reward like any other. It is mostly that of a wrong answer, whatever
the answer would have been: the policy is taught that thinking does not pay.

How it is measured: The recorded share of attempts that were cut, by tokens, turns, context or time, in this
update and the two before it.

Healthy look-alikes: A single update with long answers, or two.

Fix: Raise the limit that cuts, or declare what cut attempts are worth: not trained on, or graded lower.
Where the policy does not stop at all, see whether its stop is trained (MSK004, MSK008).

References: https://arxiv.org/abs/2503.14476, docs/control.md
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step, past_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict

STEPS = 3
"""Updates in a row."""

HALF = 0.5
"""Of all attempts."""

DECLARED = {
    "mask": "they are declared to be left out: half of what is drawn teaches nothing",
    "penalize": "they are declared to be graded lower",
}
LIMITS = ("length", "turns", "context", "time")


class Measured(NamedTuple):
    """Shares of attempts that were cut, in the last updates of the stage, and by what now."""

    shares: tuple[float, ...]
    declared: str
    limits: tuple[tuple[str, float], ...]


def measure(step: Step) -> Measured:
    """The recorded shares, this update's the last."""
    told = [past.numbers for past in step.past_of_stage[1 - STEPS :]] + [step.numbers]
    limits = [(name, step.numbers.get(f"ended/{name}", 0.0)) for name in LIMITS]
    return Measured(
        tuple(numbers.get("truncated/share", math.nan) for numbers in told),
        step.setup.truncated or "",
        tuple((name, share) for name, share in limits if share > 0),
    )


def judge(found: Measured) -> Iterator[Claim]:
    """Once is chance."""
    if len(found.shares) == STEPS and all(share >= HALF for share in found.shares):
        by = ", ".join(f"{share:.0%} by {name}" for name, share in found.limits)
        yield Claim(
            Verdict.FACT,
            f"{found.shares[-1]:.0%} of all attempts were cut off, and half or more in two updates before",
            got=by,
            expected="attempts that end by themselves; "
            + DECLARED.get(found.declared, "these are trained on as they were graded"),
        )


def example() -> Step:
    """The limit is too low for the task."""
    told = [past_step(i, truncated_share=share) for i, share in enumerate((0.4, 0.7, 0.8))]
    return changed_step(example_step(), past=told, numbers={"truncated/share": 0.75, "ended/length": 0.75})


def once() -> Step:
    """One update had long answers."""
    told = [past_step(i, truncated_share=share) for i, share in enumerate((0.1, 0.2, 0.1))]
    return changed_step(example_step(), past=told, numbers={"truncated/share": 0.6})


RULE = Rule(
    code="LEN003",
    name="attempts-cut-off",
    kind="S",
    needs=("numbers.truncated/share",),
    taints=("policy",),
    applies=is_sampled,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(once,),
)
