"""LEN003: Half of all rollouts are cut off.

What: For three steps in a row, at least half of the rollouts ended at a limit and not by themselves. This
is a FACT: a low limit, or a policy that has not learned to stop yet, is not a fault of the code.

Why it is silent: A cut rollout has a reward like any other, mostly that of a wrong answer, whatever the
full answer is worth. The policy learns that thinking does not pay.

How it is measured: The recorded share of rollouts that tokens, turns, context or time cut, in this step
and the two before it.

Healthy look-alikes: A single step with long answers, or two.

Fix: Raise the limit that cuts, or declare how cut rollouts count: not trained, or with a lower reward. If
the policy does not stop at all, check whether its stop is trained (MSK004, MSK008).

References: https://arxiv.org/abs/2503.14476, docs/control.md
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict

STEPS = 3
"""Steps in a row."""

HALF = 0.5
"""Of all rollouts."""

DECLARED = {
    "mask": "the recipe leaves these out: half of the samples teach nothing",
    "penalize": "the recipe lowers their reward",
}
LIMITS = ("length", "turns", "context", "time")


def judge(step: Step) -> Iterator[Claim]:
    """Claim several steps in a row: a single one may be chance."""
    shares = [*step.known("truncated/share").values()][-STEPS:]
    if len(shares) == STEPS and min(shares) >= HALF:
        limits = {name: step.metrics.get(f"ended/{name}", 0.0) for name in LIMITS}
        yield Claim(
            Verdict.FACT,
            f"{shares[-1]:.0%} of all rollouts were cut off, and at least half in the two steps before",
            got=", ".join(f"{share:.0%} by {name}" for name, share in limits.items() if share > 0),
            expected="rollouts that end by themselves; "
            + DECLARED.get(step.setup.truncated or "", "these are trained with their reward"),
        )


def example() -> Step:
    """The limit is too low for the task."""
    past = [past_step(i, truncated_share=share) for i, share in enumerate((0.4, 0.7, 0.8))]
    return changed_step(example_step(), past=past, metrics={"truncated/share": 0.75, "ended/length": 0.75})


def once() -> Step:
    """One step has long answers."""
    past = [past_step(i, truncated_share=share) for i, share in enumerate((0.1, 0.2, 0.1))]
    return changed_step(example_step(), past=past, metrics={"truncated/share": 0.6})


RULE = Rule(
    code="LEN003",
    name="rollouts-cut-off",
    kind="S",
    needs=("metrics.truncated/share",),
    taints=("policy",),
    applies=is_sampled,
    judge=judge,
    example=example,
    lookalikes=(once,),
)
