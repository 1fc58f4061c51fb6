"""OPT009: The optimiser got another gradient than the update's rows make.

What: The gradient at the optimiser's step is not the sum of the rows' own, clipped as declared.

Why it is silent: Each token's pull is as it should be, and what is done to the gradient afterwards is seen
by nobody: a micro-batch that is lost or counted twice, a layer whose gradient is cleared, a sign, a clip of
each micro-batch by itself, a gradient that was left over from the update before. The loss and its parts are
those of a sound run, and the norm is a number like any other.

How it is measured: At a look all rows of the update go backward in small parts, before the update is
computed, and their gradients are added up. Once the optimiser is called, its gradient is compared with the
sum as a vector: length, angle, and the length of the difference. In TRL the sum is that of a plain forward
of each row, pulled at each log-probability as the trainer's own loss pulled.

Healthy look-alikes: Rounding in another order, a few millionths in float32. Tokens that are certain, of
which only rounding is left. Dropout and noise, which make another gradient each time: there nothing is
compared. On a GPU the comparison is never proof.

Fix: The angle says where to look: the opposite is a sign; none and another length is a micro-batch that
counts twice, a wrong number of accumulated micro-batches, or a clip of each; anything else is a part that
is lost, cleared, or left over.

References: https://huggingface.co/blog/gradient_accumulation, docs/control.md
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step
from truing.doctor.made import but, made
from truing.doctor.rule import Rule
from truing.doctor.rules.opt006 import Measured, compared, differ, reading
from truing.doctor.verdict import Claim, Verdict
from truing.words import counted


def measure(step: Step) -> Measured:
    """As the optimiser got it, beside the sum of the rows' own."""
    return compared(step.facts["arrival"])


def judge(found: Measured) -> Iterator[Claim]:
    """Two hundredths: rounding is thousands of times less."""
    if differ(found):
        yield Claim(
            Verdict.SUSPECT if found.coarse else Verdict.PROVEN,
            f"the optimiser's gradient is not the sum of its {counted(found.rows, 'row')}{reading(found)}",
            got=f"a length of {found.trainer:.3g}, cosine {found.cosine:.3g}, {found.difference:.3g} apart",
            expected=f"a length of {found.plain:.3g}",
            likely=1,
        )


def _of(**lengths: float) -> Step:
    known = {"rows": 8, "device": "cpu", "norm": 0.5, "trainer": 0.5, "cosine": 1.0, "pulled": 2.0}
    return but(made(), facts={"arrival": known | {"difference": 2e-6} | lengths})


def example() -> Step:
    """A sign was turned."""
    return _of(cosine=-1.0, difference=1.0)


def another_order() -> Step:
    """Micro-batches add up in another order."""
    return _of(difference=5e-5)


def certain() -> Step:
    """All tokens are nearly certain: what is left of the gradient is rounding."""
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
    lookalikes=(another_order, certain),
)
