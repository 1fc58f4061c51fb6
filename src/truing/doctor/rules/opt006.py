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
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.forward_difference import MEAN_MULTIPLES
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count

RELATIVE, MEASURED, TIMES = 0.02, 2e-3, 20
"""Of the gradient's length, where nobody measured how far the trainer is from itself, and where somebody did;
and multiples of that."""

FLOOR = 1e-4
"""Of what pulls: a shorter gradient is of tokens that are certain, and float32 keeps nothing of it."""

NOTHING = 1e-4
"""Sum of what pulls: below it pulls are themselves the rounding of log-probabilities."""


FAR = 0.25
"""Of the gradient's length, in another precision than float32: a router that chooses another expert for a few
tokens changes less."""


class Measured(NamedTuple):
    """Two gradients of the same rows."""

    difference: float  # length of their difference
    plain: float  # length of the plain one
    trainer: float
    cosine: float
    null: float  # length of the trainer's difference to itself
    pulled: float  # sum of what pulls at log-probabilities
    rows: int
    device: str
    rounding: float | None = None  # length of what rounding at random changes; not asked in float32

    @property
    def sure(self) -> bool:
        """Whether it was compared in float32 on a CPU; in another precision, and the two are far apart."""
        if self.rounding is None:
            return self.device == "cpu"
        far = self.difference > max(TIMES * self.rounding, FAR * self.plain)
        return far and self.device.startswith("cpu")


def measure(step: Step) -> Measured:
    """As it was compared beside the update."""
    return compared(step.facts["gradient"])


def compared(known: Mapping[str, Any]) -> Measured:
    """Two gradients as they are on record."""
    lengths = (known[name] for name in ("difference", "norm", "trainer"))
    told = (known.get("null", 0.0), known["pulled"], known["rows"], known["device"], known.get("rounding"))
    return Measured(*lengths, known.get("cosine", math.nan), *told)


def judge(found: Measured) -> Iterator[Claim]:
    """Two thousandths, or twenty times what the trainer differs from itself."""
    if differ(found):
        yield Claim(
            Verdict.PROVEN if found.sure else Verdict.SUSPECT,
            f"the gradient of {with_count(found.rows, 'row')} is not that of a plain backward{reading(found)}",
            got=f"a length of {found.trainer:.3g}, cosine {found.cosine:.3g}, {found.difference:.3g} apart",
            expected=f"a length of {found.plain:.3g}; the trainer is {found.null:.2g} from itself",
            specificity=0.8,
        )


def differ(found: Measured, relative: float = RELATIVE) -> bool:
    """Whether it is more than rounding makes."""
    relative = min(relative, MEASURED) if found.null else relative
    least = max(relative * found.plain, RELATIVE * FLOOR * found.pulled, TIMES * found.null)
    if found.rounding is not None:
        least = max(least, MEAN_MULTIPLES * found.rounding)
    return found.pulled >= NOTHING and found.difference > least


def reading(found: Measured) -> str:
    """What angle and length say, in words."""
    if found.trainer < 1e-6 * found.plain:
        return ": none arrives, as where the loss is detached"
    if found.plain and abs(found.difference - abs(found.trainer - found.plain)) < 0.1 * found.difference:
        times = found.trainer / found.plain
        return f": it is {times:.3g} times as long, as with another denominator or weight"
    if found.cosine < -0.9:
        return ": it points the other way, as with a wrong sign"
    if abs(found.cosine) < 0.1:
        return ": they have nothing in common, as of other rows"
    return ": a part of it is missing, or of other rows, or of chance as with dropout"


def _of(**lengths: float) -> Step:
    known = {
        "rows": 4,
        "device": "cpu",
        "norm": 0.5,
        "trainer": 0.5,
        "cosine": 1.0,
        "pulled": 2.0,
        "null": 1e-6,
    }
    return changed_step(example_step(), facts={"gradient": known | {"difference": 2e-6} | lengths})


def a_kl_alone_at_the_start() -> Step:
    """Groups of equal reward, and a reference that is the policy: only rounding pulls."""
    return _of(norm=1e-9, trainer=9e-10, difference=4e-10, pulled=3e-8)


def example() -> Step:
    """Half the rows are detached."""
    return _of(trainer=0.35, cosine=0.7, difference=0.36)


def bfloat16() -> Step:
    """The trainer is as far from itself."""
    return _of(difference=0.015, null=0.01)


def certain() -> Step:
    """All tokens are nearly certain: what is left of the gradient is rounding."""
    return _of(norm=1e-9, trainer=2e-8, cosine=0.0, difference=2e-8, null=1e-9)


RULE = Rule(
    code="OPT006",
    name="gradient-not-plain",
    kind="M",
    needs=("facts.gradient",),
    taints=("sft", "policy"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(bfloat16, certain, a_kl_alone_at_the_start),
)
