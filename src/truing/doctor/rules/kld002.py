"""KLD002: The mean KL to the reference is below 0.

What: Over many steps the mean of log π − log π_ref, at tokens that π itself sampled, is significantly below
0. A KL cannot be negative.

Why it is silent: One negative step is normal: the estimate scatters to both sides. Only many steps show it,
and then it looks like a policy that has returned to its reference. The sign is wrong, or policy and
reference are exchanged, or another policy sampled the tokens.

How it is measured: The mean over all steps of the stage, against its standard error from step to step. The
rule fires at six standard errors below 0, over twelve steps or more. It applies only if each step makes one
step, and the KL is in the loss, so that every rollout has a KL; or if another trainer's log has such a
KL. The k3 estimate is never below 0 for any token: a mean below −0.02 is proof, since arithmetic in
bfloat16 leaves at least −0.01.

Healthy look-alikes: Negative values in single steps. Several optimizer steps per batch: an older policy
sampled its tokens, and the mean may be negative. Rollouts selected by reward: they are not a random sample.

Fix: Compare the sign with `kl_all/k3`, which is near k1 and never below 0. KLD001 shows whether policy and
reference are exchanged.

References: http://joschu.net/blog/kl-approx.html
"""

import math
from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.oracle.credit import mean, sample_std
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.types.step_table import StepNumbers
from truing.utils.format import with_count

STEPS = 12
ERRORS = -6.0

NEVER = -0.02
"""Nats per token: exp(x) − x − 1 is at least 0, and each of its three roundings to 8 bits at most 2⁻⁸."""

K3 = ("kl_all/k3", "kl_trained/k3", "kl/weighted_k3")
THEIRS = ("kl_trained/k1", "kl/any")
"""Of other trainers: TRL's RLOO scores samples with the weights that sampled, and its GRPO reports k3."""


ANY_KL = " | ".join(f"metrics.{name}" for name in (*K3, "kl_all/k1", *THEIRS))


def _signed(step: Step) -> str:
    """Return the estimate whose mean cannot be below 0 here; empty without one."""
    setup = step.setup
    if setup.trainer == "trl":
        return next((name for name in THEIRS if name in step.metrics), "")
    drawn_by_it = setup.inner_steps == 1 and setup.on_policy is True
    scored = setup.kl_where == "loss" and (setup.kl_coef or 0) > 0
    return "kl_all/k1" if "kl_all/k1" in step.metrics and drawn_by_it and scored else ""


def judge(step: Step) -> Iterator[Claim]:
    """Claim six standard errors, since the test repeats after every step; k3 has only rounding."""
    k3 = next((step.metrics[name] for name in K3 if name in step.metrics), math.nan)
    values = [*step.known(_signed(step)).values()]
    if math.isnan(k3) and len(values) < STEPS:
        yield Claim(Verdict.NOT_CHECKED, f"{STEPS} steps with the KL to the reference")
    if k3 < NEVER:
        yield Claim(
            Verdict.PROVEN,
            f"the mean of k3, exp(x) − x − 1 of each token, is {k3:.3g}, although no token's"
            " value can be below 0",
            got=f"{k3:.6g}",
            expected="at least 0, up to rounding",
            specificity=2,
        )
    if len(values) < STEPS:
        return
    middle, error = mean(values), sample_std(values) / math.sqrt(len(values))
    if middle < ERRORS * error:
        yield Claim(
            Verdict.SUSPECT,
            f"the mean KL of {with_count(len(values), 'step')} is {middle:.3g} nats per token,"
            " although a KL cannot be below 0",
            got=f"{middle:.3g} ± {error:.2g}",
            expected="at least 0, up to a few standard errors",
            specificity=1,
        )


def _series(*values: float) -> Step:
    """Return the last step of a stage with these KLs."""
    step = example_step(
        setup={"kl_coef": 0.05, "kl_where": "loss", "kl_estimator": "k3", "reference_moves": True}
    )
    past = [StepNumbers("grpo", number, {"kl_all/k1": value}, {}) for number, value in enumerate(values[:-1])]
    return changed_step(step, metrics={"kl_all/k1": values[-1], "kl_all/k3": abs(values[-1])}, past=past)


def example() -> Step:
    """The sign is wrong: it falls as the policy learns."""
    return _series(*(-1e-3 * step for step in range(16)))


def rounded() -> Step:
    """A k3 that bfloat16 has rounded below 0."""
    return changed_step(_series(1e-3), metrics={"kl_all/k3": -0.004})


def scattered() -> Step:
    """A KL near 0, on both sides."""
    return _series(*(1e-3 * math.sin(7 * step) for step in range(16)))


RULE = Rule(
    code="KLD002",
    name="kl-negative",
    kind="X",
    needs=(ANY_KL,),
    taints=("reference", "metrics"),
    applies=lambda step: bool(_signed(step)) or any(name in step.metrics for name in K3),
    judge=judge,
    example=example,
    lookalikes=(scattered, rounded),
)
