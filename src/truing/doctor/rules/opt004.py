"""OPT004: The learning rate is higher than declared.

What: The update was made with a rate above the declared one, which is the highest that any schedule should
reach.

Why it is silent: A rate is set once and looked at never. A schedule that multiplies instead of replacing, a
rate that is scaled by the number of processes, or one that a resumed optimiser brought along is a few times
too high: learning is fast, and then it collapses.

How it is measured: The recorded rate of the update against the declared peak, which warm-up and decay only
lower.

Healthy look-alikes: A lower rate, in warm-up, under a schedule, or after a guard has lowered it. A critic,
or a group of weights, with a rate of its own, which is not this one.

Fix: Set the rate of each group before each step from the schedule alone, and read back what the optimiser
has.

References: https://arxiv.org/abs/1711.05101
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.made import but, made
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict


class Measured(NamedTuple):
    """The rate of the update, and the declared peak."""

    rate: float
    declared: float


def measure(step: Step) -> Measured:
    """As the optimiser had it, and as the recipe has it."""
    assert step.setup.learning_rate is not None
    return Measured(step.numbers["lr"], step.setup.learning_rate)


def judge(found: Measured) -> Iterator[Claim]:
    """A schedule only lowers it."""
    if found.rate > found.declared * (1 + 1e-6):
        yield Claim(
            Verdict.PROVEN,
            f"the learning rate is {found.rate / found.declared:.3g} times the declared one"
            if found.declared
            else "the learning rate is above 0, and 0 is declared",
            got=f"{found.rate:.6g}",
            expected=f"at most {found.declared:.6g}",
            likely=2,
        )


def example() -> Step:
    """The rate is scaled by the number of processes."""
    return but(made(), numbers={"lr": 8e-3})


def warming_up() -> Step:
    """Half the rate, at the start."""
    return but(made(), numbers={"lr": 5e-4})


RULE = Rule(
    code="OPT004",
    name="rate-not-as-declared",
    kind="E",
    needs=("numbers.lr", "setup.learning_rate"),
    taints=("sft", "policy"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(warming_up,),
)
