"""KLD002: The mean KL to the reference is below 0.

What: Over many steps the mean of log π − log π_ref, at tokens that π itself drew, lies below 0 by more than
chance explains. A KL cannot be negative.

Why it is silent: One negative step is nothing: the estimate scatters to both sides. Only over many steps is
it plain, and then it looks like a policy that has come back to its reference. The sign is wrong, or policy
and reference are exchanged, or the tokens are another policy's.

How it is measured: The mean over all steps of the stage, against its standard error from step to step: it
must not lie six of those below 0, over twelve steps or more. Only where each step makes one update, and the
KL is in the loss, so that every attempt was scored.

Healthy look-alikes: Negative values in single steps. Several updates per batch: its tokens are then of an
older policy, and the mean may be negative. Attempts that were scored because of their reward: a choice, and
no sample.

Fix: Compare the sign with `kl_all/k3`, which is near k1 and never below 0; KLD001 tells whether policy and
reference are exchanged.

References: http://joschu.net/blog/kl-approx.html
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Past, Step
from truing.doctor.made import but, made
from truing.doctor.oracle.credit import deviation, mean
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict

STEPS = 12
ERRORS = -6.0


class Measured(NamedTuple):
    """The mean of k1 over the stage, and how sure it is."""

    steps: int
    mean: float
    error: float  # of the mean


def measure(step: Step) -> Measured:
    """Mean and standard error over all steps of the stage."""
    numbers = [*(past.numbers for past in step.of_stage), step.numbers]
    told = [each["kl_all/k1"] for each in numbers if math.isfinite(each.get("kl_all/k1", math.nan))]
    if not told:
        return Measured(0, 0.0, 0.0)
    return Measured(len(told), mean(told), deviation(told) / math.sqrt(len(told)))


def judge(found: Measured) -> Iterator[Claim]:
    """Six standard errors, for it is looked at after every step."""
    if found.steps >= STEPS and found.mean < ERRORS * found.error:
        yield Claim(
            Verdict.SUSPECT,
            f"the mean KL of {found.steps} steps is {found.mean:.3g} nats per token, and cannot be below 0",
            got=f"{found.mean:.3g} ± {found.error:.2g}",
            expected="at least 0, to a few standard errors",
            likely=1,
        )


def _series(*values: float) -> Step:
    """A stage whose steps told these KLs."""
    step = made(setup={"kl_coef": 0.05, "kl_where": "loss", "kl_estimator": "k3", "reference_moves": True})
    told = [Past("grpo", number, {"kl_all/k1": value}, {}) for number, value in enumerate(values[:-1])]
    return but(step, numbers={"kl_all/k1": values[-1], "kl_all/k3": abs(values[-1])}, past=told)


def example() -> Step:
    """The sign is wrong: it falls as the policy learns."""
    return _series(*(-1e-3 * step for step in range(16)))


def scattered() -> Step:
    """A KL near 0, to both sides."""
    return _series(*(1e-3 * math.sin(7 * step) for step in range(16)))


RULE = Rule(
    code="KLD002",
    name="kl-negative",
    kind="X",
    needs=("numbers.kl_all/k3",),
    taints=("reference", "metrics"),
    when=lambda step: (
        "kl_all/k1" in step.numbers
        and step.setup.inner_steps == 1
        and step.setup.on_policy is True
        and step.setup.kl_where == "loss"
        and (step.setup.kl_coef or 0) > 0
    ),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(scattered,),
)
