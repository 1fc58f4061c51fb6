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

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict

ROUNDING, DIGITS = 1e-3, 8
"""Of the norm; and as many units in the last place of the gradient."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim a norm that does not follow from the other."""
    clip, largest = step.facts["clip"], step.setup.max_grad_norm
    assert largest is not None
    found = clip.get("before", step.metrics["grad/norm"])
    expected = min(found, largest)
    if abs(clip["norm"] - expected) > max(ROUNDING, DIGITS * clip["eps"]) * expected:
        part = f" {clip['part']}" if "part" in clip else ""
        what = "is not clipped as declared" if clip["norm"] > largest else "changed before the optimizer step"
        yield Claim(
            Verdict.PROVEN,
            f"the gradient{part} {what}",
            got=f"a norm of {clip['norm']:.4g} at the optimizer",
            expected=f"{expected:.4g}, of {found:.4g} clipped to {largest:.4g}",
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
    judge=judge,
    example=example,
    lookalikes=(small, bfloat16),
)
