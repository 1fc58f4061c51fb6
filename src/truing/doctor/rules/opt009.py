"""OPT009: The optimiser got another gradient than the update's rows make.

What: The gradient at the optimiser's step is not the sum of the rows' own, clipped as declared.

Why it is silent: Each token's pull is as it should be, and what is done to the gradient afterwards is seen
by nobody: a micro-batch that is lost or counted twice, a layer whose gradient is cleared, a sign, a clip of
each micro-batch by itself, a gradient that was left over from the update before. The loss and its parts are
those of a sound run, and the norm is a number like any other.

How it is measured: At a look all rows of the update go backward in small parts, before the update is
computed, and their gradients are added up. Once the optimiser is called, its gradient is compared with the
sum as a vector: length, angle, and the length of the difference. In TRL the sum is that of a plain forward
of each row, pulled at each log-probability as the trainer's own loss pulled. In another precision than
float32 the sum is taken once more with each module rounded at random: four times what that changes is
allowed, and twenty times are proof. A weight without a gradient is moved by a hundredth: if
log-probabilities follow, and half as far by half of it, a path is cut.

Healthy look-alikes: Rounding in another order, a few millionths in float32. Tokens that are certain, of
which only rounding is left. A of an adapter whose B is still 0: it has no gradient, and moves
nothing. Dropout and noise, which make another gradient each time: there nothing is compared. On a GPU the
comparison is never proof.

Fix: The angle says where to look: the opposite is a sign; none and another length is a micro-batch that
counts twice, a wrong number of accumulated micro-batches, or a clip of each; anything else is a part that
is lost, cleared, or left over.

References: https://huggingface.co/blog/gradient_accumulation, docs/control.md
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.rounding_tolerance import stage_rounding, tolerance
from truing.doctor.rule import Rule
from truing.doctor.rules.opt006 import Measured as Gradients
from truing.doctor.rules.opt006 import compared, differ, reading
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count

RELATIVE = 2e-3
"""Of the gradient's length."""

FREE = 1e-3
"""Sum of what pulls at tokens that are not certain: beside it a gradient of exactly 0 is no rounding."""

MOVED = 1e-4
"""Nats per pull that log-probabilities move by, far beyond rounding where nobody measured that."""


class Measured(NamedTuple):
    """What the optimiser got, and what it could not have got."""

    gradients: Gradients
    free: float  # Σ |pull| (1 − p)
    weight: str  # on which log-probabilities depend, and which gets no gradient; "" where there is none
    moved: float  # nats per pull, by a nudge of that weight
    silent: int  # weights without a gradient
    least: float  # nats per pull that rounding does not explain


def measure(step: Step) -> Measured:
    """As the optimiser got it, beside the sum of the rows' own."""
    known = step.facts["arrival"]
    cut = known.get("unheard") or {"weight": "", "moved": 0.0, "silent": 0}
    least = tolerance(stage_rounding(step), None, MOVED) or MOVED
    return Measured(compared(known), known["free"], cut["weight"], cut["moved"], cut["silent"], least)


def judge(found: Measured) -> Iterator[Claim]:
    """Two thousandths: rounding is a thousand times less."""
    gradients = found.gradients
    verdict = Verdict.PROVEN if gradients.sure else Verdict.SUSPECT
    if differ(gradients, RELATIVE):
        yield Claim(
            verdict,
            f"the optimiser's gradient is not the sum of its {with_count(gradients.rows, 'row')}"
            f"{reading(gradients)}",
            got=f"a length of {gradients.trainer:.3g}, cosine {gradients.cosine:.3g},"
            f" {gradients.difference:.3g} apart",
            expected=f"a length of {gradients.plain:.3g}"
            + ("" if gradients.rounding is None else f"; rounding changes {gradients.rounding:.2g} of it"),
            specificity=1,
        )
    elif gradients.plain == gradients.trainer == 0 and found.free > FREE:
        yield Claim(
            verdict,
            f"{gradients.rows} rows pull at their tokens, and no weight that is trained gets any gradient",
            got="0 at all of them",
            expected="a gradient: some of what the answers depend on is to be trained",
            specificity=1.5,
        )
    if found.moved > found.least:
        yield Claim(
            verdict,
            f"no gradient comes to {found.weight}, though the answers depend on it: the path is cut",
            got=f"0 at {found.silent} weights; a change of this one by a hundredth moves log-probabilities by"
            f" {found.moved:.2g} nats",
            expected="a gradient of what a weight does",
            specificity=2,
        )


def _of(**lengths: object) -> Step:
    known = {"rows": 8, "device": "cpu", "norm": 0.5, "trainer": 0.5, "cosine": 1.0, "pulled": 2.0}
    return changed_step(
        example_step(), facts={"arrival": known | {"free": 1.0, "difference": 2e-6} | lengths}
    )


def example() -> Step:
    """A sign was turned."""
    return _of(cosine=-1.0, difference=1.0)


def another_order() -> Step:
    """Micro-batches add up in another order."""
    return _of(difference=5e-5)


def rounded() -> Step:
    """A forward in bfloat16: rounding changes a hundredth of the gradient."""
    return _of(device="cpu, torch.bfloat16", difference=5e-3, rounding=4e-3)


def certain() -> Step:
    """All tokens are nearly certain: what is left of the gradient is rounding, or nothing."""
    return _of(norm=0.0, trainer=0.0, difference=0.0, free=1e-7)


def of_noise() -> Step:
    """What is left of the gradient is rounding."""
    return _of(norm=1e-9, trainer=2e-8, cosine=0.0, difference=2e-8)


RULE = Rule(
    code="OPT009",
    name="gradient-not-of-its-rows",
    kind="M",
    needs=("facts.arrival",),
    taints=("sft", "policy"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(another_order, rounded, certain, of_noise),
)
