"""OPT014: The optimizer's gradient differs from the sum of the backward passes.

What: Between the backward passes of a step and the optimizer step, the gradient of some weight was lost,
cleared, negated, scaled or added to. Or a backward pass gave no gradient to a weight that its samples depend
on.

Why it is silent: It may happen once, to one layer: a gradient cleared at low memory, a hook that fires at
the wrong time, a scaler that unscales a part twice. Each token gradient is right, the weights move, and the
norm is a number like any other.

How it is measured: In every step, the check adds up 16 entries of each weight's gradient as autograd
returns them, and compares the sums with the same entries at the optimizer step. Clipping multiplies all
weights by one factor: the median over weights, which must be that of the declared clip. If some pass gives
a weight no gradient, while others do, the check changes it by a hundredth: if log-probabilities change, and
half as much with half the change, the path is cut. With several ranks the sums are over the passes of all,
read before gradients are exchanged; a factor of one over the number of ranks is an average.

Healthy look-alikes: Rounding of sums. A of an adapter whose B is still 0: its gradient is 0. Experts
without tokens: changing them changes nothing. A clip of the whole gradient.

Fix: The names of the weights show the cause. One layer is a hook, a freeze or a checkpoint of its own. One
factor for all is a denominator, a scaler, or an average over ranks. Weights with a gradient from no backward
pass were not cleared before.

References: https://pytorch.org/docs/stable/notes/autograd.html, docs/control.md
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rounding_tolerance import least_effect
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count

CLIP = 1e-3
"""Of the clip's factor: the rounding of a norm in another order."""

MOVED = 1e-4
"""Nats per unit of token gradient, far beyond unmeasured rounding."""


class Measured(NamedTuple):
    """Gradients of the backward passes, and at the optimizer."""

    weights: int
    wrong: tuple[str, ...]  # the first with a different gradient
    count: int
    relative: float  # difference of the first, relative to its length
    foreign: tuple[str, ...]  # weights with a gradient from no backward pass
    steps: int  # of the optimizer, in the step
    calls: int  # of the optimizer
    factors: dict[str, tuple[float, float]]
    """Median factor on the policy's and the critic's gradients, and the declared clip's; NaN if unknown."""
    ranks: int
    cut: str  # a weight without a gradient in a pass whose samples depend on it; "" without one
    moved: float  # nats per unit of token gradient, by a small change of it
    silent: int
    least: float  # nats per unit of token gradient beyond rounding


def measure(step: Step) -> Measured:
    """Read the comparison recorded with the step."""
    known = step.facts["backward_sums"]
    cut = known.get("missing_gradient") or {"weight": "", "moved": 0.0, "silent": 0}
    factors = {
        part: (math.nan if known.get(factor) is None else known[factor], _clip(step, norm))
        for part, factor, norm in PARTS
    }
    return Measured(
        known["weights"],
        tuple(known["wrong"]),
        known["count"],
        known["relative"],
        tuple(known["foreign"]),
        known["steps"],
        known["calls"],
        factors,
        known.get("ranks", 1),
        cut["weight"],
        cut["moved"],
        cut["silent"],
        least_effect(step, cut, MOVED),
    )


PARTS = (
    ("all gradients", "factor", "grad/norm"),
    ("all gradients of the critic", "critic_factor", "grad/critic_norm"),
)
"""Parts that are clipped by themselves, with the names of their factor and their norm."""


def _clip(step: Step, norm: str) -> float:
    most, length = step.setup.max_grad_norm, step.metrics.get(norm, math.nan)
    return min(1.0, most / length) if most is not None and length > 0 else math.nan


def judge(measured: Measured) -> Iterator[Claim]:
    """Claim any difference, and a factor other than the clip's."""
    of_ranks = " of all ranks" if measured.ranks > 1 else ""
    if measured.count:
        yield _claim(
            f"{measured.count} of {with_count(measured.weights, 'weight')} have another gradient than the sum"
            f" of the backward passes{of_ranks}, such as {measured.wrong[0]}",
            f"a difference of {measured.relative:.3g} of its length",
            "the sum of the backward passes, times the clip's factor",
        )
    if measured.foreign:
        yield _claim(
            f"{measured.foreign[0]} has a gradient from no backward pass of the step",
            with_count(len(measured.foreign), "such weight") + " at least",
            "gradients of this step alone: were earlier ones cleared?",
        )
    if measured.calls > measured.steps:
        yield _claim(
            "the optimizer ran more often than the step declares",
            with_count(measured.calls, "step"),
            f"{measured.steps}, one for each minibatch",
        )
    for part, (factor, clip) in measured.factors.items():
        if abs(factor - clip) > CLIP * clip:
            averaged = measured.ranks > 1 and abs(factor * measured.ranks - clip) < CLIP * clip
            what = (
                f"{part} were averaged over {measured.ranks} ranks, not summed"
                if averaged
                else f"{part} were multiplied by another factor than the clip's"
            )
            yield _claim(what, f"{factor:.5g} times the sum of the backward passes", f"{clip:.5g} times")
    if measured.moved > measured.least:
        yield _claim(
            f"a backward pass gave {measured.cut} no gradient, although its samples depend on it: the path is"
            " cut",
            f"no gradient at {with_count(measured.silent, 'weight')}; changing this one by a hundredth moves"
            f" log-probabilities by {measured.moved:.2g} nats",
            "a gradient in each backward pass",
        )


def _claim(what: str, got: str, expected: str) -> Claim:
    return Claim(Verdict.PROVEN, what, got=got, expected=expected, specificity=0.9)


def _handed(**known: object) -> Step:
    fact = {"weights": 20, "wrong": [], "count": 0, "relative": 0.0, "foreign": []}
    fact |= {"steps": 1, "calls": 1, "factor": 1.0}
    return changed_step(example_step(setup={"max_grad_norm": 1.0}), facts={"backward_sums": fact | known})


def example() -> Step:
    """A layer's gradient is cleared."""
    return _handed(wrong=["layers.1.mlp.weight"], count=9, relative=1.0)


def clipped() -> Step:
    """All gradients have the clip's factor."""
    return changed_step(_handed(factor=0.25), metrics={"grad/norm": 4.0})


def experts() -> Step:
    """An expert has no tokens, and changing it changes nothing."""
    return _handed(silent=["layers.1.experts.3.weight"], silent_count=1, unheard={})


RULE = Rule(
    code="OPT014",
    name="gradient-lost-on-its-way",
    kind="E",
    needs=("facts.backward_sums",),
    taints=("sft", "policy", "critic"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(clipped, experts),
)
