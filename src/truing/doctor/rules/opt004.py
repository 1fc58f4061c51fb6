"""OPT004: The learning rate differs from the declared one.

What: The step used another rate than the recipe's peak, warm-up and schedule give.

Why it is silent: Code sets a rate once, and no metric checks it. A schedule that multiplies instead of
replacing, a rate scaled by the number of processes, a missing warm-up, or one from a resumed optimizer:
learning is fast and then collapses, or never begins.

How it is measured: The rate of the step, which Truing reads from the optimizer, against a second computation
of the schedule, and the recorded rate against it. If only the peak is known, a rate above it.

Healthy look-alikes: A lower rate, in warm-up or under a schedule. A rate that a guard has lowered, which is
then the declared one. A critic, or a group of weights, with a rate of its own: the rule does not check it.

Fix: Set the rate of each group before each step from the schedule alone, and read back the optimizer's
rate.

References: https://arxiv.org/abs/1711.05101
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.oracle.learning_rate import declared_rate
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim any difference from the schedule; without one, a rate above the peak."""
    setup, exact = step.setup, False
    recorded = step.metrics["lr"]
    rate = step.facts.get("rates", [recorded])[0]
    declared = setup.learning_rate
    assert declared is not None
    if setup.schedule is not None and setup.warmup_steps is not None and setup.steps is not None:
        declared = declared_rate(step.step, declared, setup.steps, setup.warmup_steps, setup.schedule)
        exact = True
    if rate > declared * (1 + 1e-6) or (exact and rate < declared * (1 - 1e-6)):
        yield Claim(
            Verdict.PROVEN,
            f"the learning rate is {rate / declared:.3g} times the declared one"
            if declared
            else "the learning rate is above 0, and 0 is declared",
            got=f"{rate:.6g}",
            expected=f"{'' if exact else 'at most '}{declared:.6g}",
            specificity=2.3,  # more than settings that OPT003 reads, of which the rate is one
        )
    elif abs(recorded - rate) > 1e-6 * rate:
        yield Claim(
            Verdict.PROVEN,
            "the recorded learning rate is not the optimizer's",
            got=f"{recorded:.6g} is recorded",
            expected=f"{rate:.6g}",
            specificity=2.3,
        )


def example() -> Step:
    """The trainer scales the rate by the number of processes."""
    return changed_step(example_step(), metrics={"lr": 8e-3})


def of_the_critic() -> Step:
    """The record has the rate of the critic."""
    return changed_step(example_step(), metrics={"lr": 3e-4}, facts={"rates": [1e-3, 3e-4]})


def warming_up() -> Step:
    """Half the rate, at the start."""
    return changed_step(example_step(), metrics={"lr": 5e-4})


def declared() -> Step:
    """The first of ten steps of warm-up."""
    schedule = {"schedule": "cosine", "warmup_steps": 10, "steps": 100}
    return changed_step(example_step(), metrics={"lr": 1e-4}, setup=schedule)


RULE = Rule(
    code="OPT004",
    name="rate-not-as-declared",
    kind="E",
    needs=("metrics.lr", "setup.learning_rate"),
    taints=("sft", "policy"),
    judge=judge,
    example=example,
    lookalikes=(warming_up, declared),
)
