"""OPT008: The optimizer's gradient is not clipped as declared.

What: The gradient norm at the optimizer step is neither the measured norm nor, if that is larger, the
declared maximum.

Why it is silent: The reported norm is that before clipping, whatever follows. A missing clip shows only
when one bad batch moves the policy far. A clip applied twice, or over all processes' sum, makes every step
smaller.

How it is measured: The norm over all gradients of the policy, and of the critic, when the optimizer runs,
against min(norm, maximum norm), at every optimizer step. Adapters and small models alone: for others it costs
too much.

Healthy look-alikes: A norm below the maximum, which is not clipped. A critic's gradient, which is clipped
by itself. A gradient in bfloat16: two or three digits remain after the clip.

Fix: Clip once, after the last micro-batch and before the step, by the norm over all trained weights.

References: https://arxiv.org/abs/1211.5063
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict

ROUNDING, DIGITS = 1e-3, 8
"""Of the norm; and as many units in the last place of the gradient."""


class Measured(NamedTuple):
    """Norms of the gradient: as measured, at the optimizer, and the declared maximum."""

    found: float
    got: float
    largest: float
    eps: float  # the machine epsilon of the coarsest gradient type
    part: str = ""  # of what


def measure(step: Step) -> Measured:
    """Read the recorded norms."""
    assert step.setup.max_grad_norm is not None
    clip = step.facts["clip"]
    found = clip.get("before", step.metrics["grad/norm"])
    return Measured(found, clip["norm"], step.setup.max_grad_norm, clip["eps"], clip.get("part", ""))


def judge(measured: Measured) -> Iterator[Claim]:
    """Claim a norm that does not follow from the other."""
    expected = min(measured.found, measured.largest)
    if abs(measured.got - expected) > max(ROUNDING, DIGITS * measured.eps) * expected:
        missing = measured.got > measured.largest
        what = "was not clipped" if missing else "changed before the optimizer step"
        yield Claim(
            Verdict.PROVEN,
            f"the gradient{measured.part and ' ' + measured.part} {what}",
            got=f"a norm of {measured.got:.4g} at the optimizer",
            expected=f"{expected:.4g}, of {measured.found:.4g} clipped to {measured.largest:.4g}",
            specificity=2,
        )


def example() -> Step:
    """The clip is missing."""
    return changed_step(
        example_step(setup={"max_grad_norm": 0.1}), facts={"clip": {"norm": 1.0, "eps": 1e-7}}
    )


def of_the_critic() -> Step:
    """The critic's gradient is clipped in the last of four optimizer steps alone."""
    clip = {"before": 3.0, "norm": 3.0, "eps": 1e-7, "part": "of the critic, in optimizer step 2"}
    return changed_step(example_step(setup={"max_grad_norm": 0.5}), facts={"clip": clip})


def small() -> Step:
    """A norm below the maximum."""
    return changed_step(
        example_step(setup={"max_grad_norm": 2.0}), facts={"clip": {"norm": 1.0, "eps": 1e-7}}
    )


def bfloat16() -> Step:
    """A gradient clipped in bfloat16 has three digits."""
    return changed_step(
        example_step(setup={"max_grad_norm": 0.5}), facts={"clip": {"norm": 0.4935, "eps": 2**-7}}
    )


RULE = Rule(
    code="OPT008",
    name="not-clipped-as-declared",
    kind="E",
    needs=("facts.clip", "metrics.grad/norm", "setup.max_grad_norm"),
    taints=("sft", "policy"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(small, bfloat16),
)
