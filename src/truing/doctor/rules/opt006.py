"""OPT006: The gradient is not the one that a plain backward gives.

What: The gradient that the update used, and the one that a plain computation of the same loss makes from
the same rows, differ by more than the trainer differs from itself.

Why it is silent: A gradient of the wrong rows, of a part of the weights, or through a path that was cut has
a norm like any other. The pull on each log-probability may be as declared, and still not arrive at the
weights.

How it is measured: Some rows are computed again one at a time in float32, without packing, recomputation or
a shared prefix, and their loss goes backward through the model's own forward. Both gradients are compared
as vectors: the length of their difference, their angle, and the ratio of their lengths. What is normal is
the trainer against itself in other micro-batches.

Healthy look-alikes: A difference of a hundredth in bfloat16, where the trainer is as far from itself. Rows
without an advantage, whose gradient is 0 in both. On a GPU the comparison is never proof.

Fix: The angle says where to look: none and another length is a denominator or a weight; a right angle is
other rows, or a detached part; the opposite is a sign.

References: https://arxiv.org/abs/1604.06174, docs/control.md
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.made import but, made
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict


class Measured(NamedTuple):
    """Two gradients of the same rows."""

    relative: float  # length of their difference, of the plain one's; infinite where that is 0 and theirs not
    cosine: float
    scale: float  # length of the trainer's, of the plain one's
    null: float | None  # the trainer against itself, as ``relative``
    rows: int
    on_cuda: bool


def measure(step: Step) -> Measured:
    """As it was compared beside the update."""
    known = step.facts["gradient"]
    extra = math.inf if known.get("trainer", 0.0) > 0 else 0.0  # where nothing should pull
    return Measured(
        known.get("relative", extra),
        known.get("cosine", math.nan),
        known.get("scale", math.nan),
        known.get("null"),
        known.get("rows", 0),
        known.get("device") == "cuda",
    )


def judge(found: Measured) -> Iterator[Claim]:
    """Two hundredths, or twenty times what the trainer differs from itself."""
    bound = max(0.02, 20 * (found.null or 0.0))
    if found.relative > bound:
        sure = found.null is not None and not found.on_cuda
        yield Claim(
            Verdict.PROVEN if sure else Verdict.SUSPECT,
            f"the gradient of {found.rows} rows is not that of a plain backward{_reading(found)}",
            got="a gradient"
            if math.isinf(found.relative)
            else f"a difference of {found.relative:.3g}, cosine {found.cosine:.3g},"
            f" {found.scale:.3g} times as long",
            expected=f"within {bound:.2g}"
            + ("" if found.null is None else f": the trainer is {found.null:.2g} from itself"),
            likely=1.5,
        )


def _reading(found: Measured) -> str:
    """What angle and length say, in words."""
    if math.isinf(found.relative):
        return ": nothing should pull, and something does"
    if found.scale < 1e-6:
        return ": none arrives, as where the loss is detached"
    if found.cosine > 0.999:
        return f": it is {found.scale:.3g} times as long, as with another denominator or weight"
    if found.cosine < -0.9:
        return ": it points the other way, as with a wrong sign"
    if abs(found.cosine) < 0.1:
        return ": they have nothing in common, as of other rows"
    return ": a part of it is missing, or of other rows"


def example() -> Step:
    """Half the rows are detached."""
    known = {"cosine": 0.7, "relative": 0.71, "null": 1e-5, "rows": 4, "scale": 0.7}
    return but(made(), facts={"gradient": known})


def bfloat16() -> Step:
    """The trainer is as far from itself."""
    known = {"cosine": 0.9998, "relative": 0.03, "null": 0.02, "rows": 4, "scale": 1.001}
    return but(made(), facts={"gradient": known})


def nothing() -> Step:
    """Rows without an advantage: both gradients are 0."""
    return but(made(), facts={"gradient": {"rows": 4, "device": "cpu", "trainer": 0.0}})


RULE = Rule(
    code="OPT006",
    name="gradient-not-plain",
    kind="M",
    needs=("facts.gradient",),
    taints=("sft", "policy"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(bfloat16, nothing),
)
