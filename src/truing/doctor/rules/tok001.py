"""TOK001: The ids that are trained on are not those that were drawn.

What: At some positions the trainer scores another id than the sampler drew, or one of them has ids that the
other has not.

Why it is silent: The text is the same. One text has many spellings in ids, and encoding it again picks the
usual one, not the one that was drawn. Every ratio behind that place compares two different tokens.

How it is measured: Each turn's ids as the sampler returned them are compared, position by position, with
the ids of the sample that was trained on. The share of equal ones must be exactly 1; there is no tolerance
for ids.

Healthy look-alikes: That text would be encoded otherwise than it was drawn is common, and harmless as long
as nobody encodes it. Demonstrations were drawn by nobody, and are not compared.

Fix: Carry ids from the sampler to the trainer, and join turns as lists of ids. Where a sampler returns text
alone, ask it for its ids.

References: https://blog.vllm.ai/2025/10/22/agent-lightning.html,
https://github.com/huggingface/trl/issues/5224
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.made import but, made
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict


class Measured(NamedTuple):
    """Equal positions ÷ all positions."""

    equal: float


def measure(step: Step) -> Measured:
    """As the trainer counted it."""
    return Measured(step.numbers["alignment"])


def judge(found: Measured) -> Iterator[Claim]:
    """Ids are equal, or they are not."""
    if found.equal < 1:
        yield Claim(
            Verdict.PROVEN,
            f"{1 - found.equal:.2g} of all drawn positions were trained on with another id",
            got=f"{found.equal:.6g} of the ids are equal",
            expected="exactly 1",
            likely=4,  # masks and advantages of other ids are wrong as well
        )


def example() -> Step:
    """Answers were decoded and encoded again."""
    return but(made(), numbers={"alignment": 0.97})


RULE = Rule(
    code="TOK001",
    name="ids-changed",
    kind="E",
    needs=("numbers.alignment",),
    taints=("policy",),
    measure=measure,
    judge=judge,
    example=example,
)
