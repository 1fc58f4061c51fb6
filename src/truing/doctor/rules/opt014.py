"""OPT014: What backward passes handed over is not what the optimiser got.

What: Between the backward passes of an update and the optimiser's step, the gradient of some weight was
lost, cleared, turned, scaled or added to; or a backward pass gave a weight nothing that its rows depend on.

Why it is silent: It may happen once, to one layer: a gradient that is cleared where memory runs out, a hook
that fires at the wrong time, a scaler that unscales a part twice. Each token's pull is as it should be, the
weights move, and the norm is a number like any other.

How it is measured: In every update, 16 entries of each weight's gradient are added up as autograd hands them
over, and compared with the same entries at the optimiser's step. Clipping multiplies all weights by one
factor: the median over weights, which must be that of the declared clip. A weight that some pass gave
nothing, while others do, is moved by a hundredth: if log-probabilities follow, and half as far by half of
it, the path was cut.

Healthy look-alikes: Rounding of sums. A of an adapter whose B is still 0: it is handed zeros. Experts that
no token was sent to: moving them moves nothing. A clip of the whole gradient.

Fix: The names of the weights say where to look: one layer is a hook, a freeze or a checkpoint of its own;
all by one factor is a denominator or a scaler; weights that got what nobody handed over were not cleared
before.

References: https://pytorch.org/docs/stable/notes/autograd.html, docs/control.md
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.rounding_tolerance import stage_rounding, tolerance
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count

CLIP = 1e-3
"""Of the clip's factor: what a norm in another order leaves."""

MOVED = 1e-4
"""Nats per pull, far beyond rounding where nobody measured that."""


class Measured(NamedTuple):
    """What was handed over, and what arrived."""

    weights: int
    wrong: tuple[str, ...]  # the first whose gradient is another
    count: int
    relative: float  # how far the first is off, of its own length
    foreign: tuple[str, ...]  # weights that got what nobody handed over
    steps: int  # of the optimiser, as the update has them
    calls: int  # that were made
    factor: float  # that most gradients were multiplied by; NaN where all are 0
    clip: float  # the declared one; NaN where it is not known
    cut: str  # a weight that a pass gave nothing, and its rows depend on; "" where there is none
    moved: float  # nats per pull, by a nudge of it
    silent: int
    least: float  # nats per pull that rounding does not explain


def measure(step: Step) -> Measured:
    """As it was compared beside the update."""
    known = step.facts["handed"]
    cut = known.get("unheard") or {"weight": "", "moved": 0.0, "silent": 0}
    most, norm = step.setup.max_grad_norm, step.numbers.get("grad/norm", math.nan)
    clip = min(1.0, most / norm) if most is not None and norm > 0 else math.nan
    return Measured(
        known["weights"],
        tuple(known["wrong"]),
        known["count"],
        known["relative"],
        tuple(known["foreign"]),
        known["steps"],
        known["calls"],
        math.nan if known["factor"] is None else known["factor"],
        clip,
        cut["weight"],
        cut["moved"],
        cut["silent"],
        tolerance(stage_rounding(step), None, MOVED) or MOVED,
    )


def judge(found: Measured) -> Iterator[Claim]:
    """Sums are sums, and one clip has one factor."""
    if found.count:
        yield _claim(
            f"{found.count} of {with_count(found.weights, 'weight')} got another gradient than backward passes"
            f" handed over, such as {found.wrong[0]}",
            f"{found.relative:.3g} of its own length away",
            "the sum of what was handed over, times the clip's factor",
        )
    if found.foreign:
        yield _claim(
            f"{found.foreign[0]} got a gradient, and no backward pass of the update handed it any",
            with_count(len(found.foreign), "such weight") + " at least",
            "gradients of this update alone: were those before cleared?",
        )
    if found.calls > found.steps:
        yield _claim(
            "the optimiser made more steps than the update has",
            with_count(found.calls, "step"),
            f"{found.steps}, one for each minibatch",
        )
    if abs(found.factor - found.clip) > CLIP * found.clip:
        yield _claim(
            "all gradients were multiplied on their way, by another factor than the clip's",
            f"{found.factor:.5g}",
            f"{found.clip:.5g}",
        )
    if found.moved > found.least:
        yield _claim(
            f"a backward pass gave {found.cut} nothing, though its rows depend on it: the path is cut",
            f"no gradient at {with_count(found.silent, 'weight')}; a change of this one by a hundredth moves"
            f" log-probabilities by {found.moved:.2g} nats",
            "a gradient in each backward pass",
        )


def _claim(what: str, got: str, expected: str) -> Claim:
    return Claim(Verdict.PROVEN, what, got=got, expected=expected, specificity=0.9)


def _handed(**known: object) -> Step:
    fact = {"weights": 20, "wrong": [], "count": 0, "relative": 0.0, "foreign": []}
    fact |= {"steps": 1, "calls": 1, "factor": 1.0}
    return changed_step(example_step(setup={"max_grad_norm": 1.0}), facts={"handed": fact | known})


def example() -> Step:
    """A layer's gradient was cleared."""
    return _handed(wrong=["layers.1.mlp.weight"], count=9, relative=1.0)


def clipped() -> Step:
    """All by the clip's factor."""
    return changed_step(_handed(factor=0.25), numbers={"grad/norm": 4.0})


def experts() -> Step:
    """No token was sent to an expert, and moving it moves nothing."""
    return _handed(silent=["layers.1.experts.3.weight"], silent_count=1, unheard={})


RULE = Rule(
    code="OPT014",
    name="gradient-lost-on-its-way",
    kind="E",
    needs=("facts.handed",),
    taints=("sft", "policy", "critic"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(clipped, experts),
)
