"""KLD003: The KL to the reference jumped.

What: The KL of a step is ten times the largest of all steps before it, and above half a nat per token.

Why it is silent: Without a weight in the loss the KL has no visible effect. With one, a single step adds
a term that outweighs the reward, and the clip of the gradient then hides it.

How it is measured: The recorded KL against the largest of the stage so far, over five steps or more.

Healthy look-alikes: A KL that grows from 0, quickly at first: it is never ten times its own maximum. A
synced reference: the KL starts again from there. k3 has a heavy tail, so a single token that is very
unlikely for the reference can make a jump that the next step does not show.

Fix: Check the step's largest ratios and its learning rate. Check whether the reference's weights are
still those of the start (REF001), and whether the reward falls from there on (RWD010).

References: http://joschu.net/blog/kl-approx.html, https://arxiv.org/abs/2503.14476
"""

import math
from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.rules.kld002 import ANY_KL, K3, THEIRS
from truing.doctor.verdict import Claim, Verdict
from truing.types.step_table import StepNumbers

TIMES = 10.0
"""Of the largest before: growth from 0 at most doubles from step to step, after five."""

NATS = 0.5
"""Per token: below it no answer is unlikely for the reference."""

BEFORE = 5
"""Steps that establish the usual KL."""

NAMES = (*K3, "kl_all/k1", *THEIRS)


def judge(step: Step) -> Iterator[Claim]:
    """Claim ten times the largest so far, by the first estimate that this step reports."""
    name = next(name for name in NAMES if math.isfinite(step.metrics.get(name, math.nan)))
    *before, now = step.known(name).values()
    if len(before) < BEFORE:
        yield Claim(Verdict.NOT_CHECKED, f"{BEFORE} steps before with the KL to the reference")
    elif now >= NATS and now >= TIMES * (largest := max(map(abs, before))):
        yield Claim(
            Verdict.SUSPECT,
            f"the KL jumped to {now:.3g} nats per token, after at most {largest:.2g} in the"
            f" {len(before)} steps before",
            got=f"{now:.3g}",
            expected="a KL that grows from step to step",
        )


def _kl(*values: float) -> Step:
    past = [StepNumbers("grpo", number, {"kl_all/k3": value}, {}) for number, value in enumerate(values[:-1])]
    return changed_step(example_step(), past=past, metrics={"kl_all/k3": values[-1]})


def example() -> Step:
    """One step moved the policy far from the reference."""
    return _kl(0.0, 0.004, 0.02, 0.03, 0.05, 0.06, 0.05, 14.7)


def growing() -> Step:
    """A KL without a weight that grows from 0."""
    return _kl(*(0.02 * number**1.5 for number in range(20)))


def small() -> Step:
    """Fifty times as large, and still almost 0."""
    return _kl(*(1e-5,) * 8, 5e-4)


RULE = Rule(
    code="KLD003",
    name="kl-jumped",
    kind="S",
    needs=(ANY_KL,),
    taints=("policy",),
    applies=lambda step: is_sampled(step) and any(name in step.metrics for name in NAMES),
    judge=judge,
    example=example,
    lookalikes=(growing, small),
)
