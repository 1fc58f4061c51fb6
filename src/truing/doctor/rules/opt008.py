"""OPT008: The optimiser did not get the gradient that was clipped as declared.

What: The norm of the gradient at the optimiser's step is not the norm that was found, or the declared
largest one where that is smaller.

Why it is silent: The norm that is shown is that before clipping, whatever becomes of it. A clip that is
left out shows only when one bad batch moves the policy far; a clip that is applied twice, or over all
processes' sum, makes every step smaller.

How it is measured: The norm over all gradients when the optimiser is called, against min(norm, largest
norm). Adapters and small models alone: of others it would cost too much.

Healthy look-alikes: A norm below the largest, which is not clipped. A critic's gradient, which is clipped
by itself. A gradient in bfloat16, of which the clip leaves two or three digits.

Fix: Clip once, after the last micro-batch and before the step, and by the norm over all that is trained.

References: https://arxiv.org/abs/1211.5063
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict

ROUNDING, DIGITS = 1e-3, 8
"""Of the norm; and as many times the last digit that the gradient has."""


class Measured(NamedTuple):
    """Norms of the gradient: as found, as the optimiser got it, and as large as it may be."""

    found: float
    got: float
    largest: float
    eps: float  # the last digit of a gradient of 1, in the coarsest type that there is


def measure(step: Step) -> Measured:
    """As they were recorded."""
    assert step.setup.max_grad_norm is not None
    clip = step.facts["clip"]
    return Measured(step.numbers["grad/norm"], clip["norm"], step.setup.max_grad_norm, clip["eps"])


def judge(found: Measured) -> Iterator[Claim]:
    """One norm follows from the other."""
    expected = min(found.found, found.largest)
    if abs(found.got - expected) > max(ROUNDING, DIGITS * found.eps) * expected:
        yield Claim(
            Verdict.PROVEN,
            "the gradient was not clipped"
            if found.got > found.largest
            else "the gradient was changed on its way",
            got=f"a norm of {found.got:.4g} at the optimiser",
            expected=f"{expected:.4g}, of {found.found:.4g} clipped to {found.largest:.4g}",
            specificity=2,
        )


def example() -> Step:
    """The clip was left out."""
    return changed_step(
        example_step(setup={"max_grad_norm": 0.1}), facts={"clip": {"norm": 1.0, "eps": 1e-7}}
    )


def small() -> Step:
    """A norm that needs no clip."""
    return changed_step(
        example_step(setup={"max_grad_norm": 2.0}), facts={"clip": {"norm": 1.0, "eps": 1e-7}}
    )


def bfloat16() -> Step:
    """A gradient that was clipped in bfloat16 has three digits."""
    return changed_step(
        example_step(setup={"max_grad_norm": 0.5}), facts={"clip": {"norm": 0.4935, "eps": 2**-7}}
    )


RULE = Rule(
    code="OPT008",
    name="not-clipped-as-declared",
    kind="E",
    needs=("facts.clip", "numbers.grad/norm", "setup.max_grad_norm"),
    taints=("sft", "policy"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(small, bfloat16),
)
