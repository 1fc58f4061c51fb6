"""RAT008: Old log-probabilities are not those of a plain forward before the first update.

What: What the ratio divides by is not what the weights say that the rows are about to be trained with: it is
of another generation, of other rows, of other weights, or noise was added to it.

Why it is silent: A ratio that is not 1 in the first update looks like a policy that has moved. The clip then
takes the gradient of some tokens and multiplies that of others, and the rest learns.

How it is measured: Before the first update of a batch some rows are scored once more, one by one, without
padding, and compared with the old log-probabilities on record. The trainer's own forward of the same tokens
must agree with the plain one. What is normal is how far a plain forward is from itself in another shape, or
in another precision than float32 how far rounding at random moves it.

Healthy look-alikes: Updates behind the first, whose weights have moved: there nothing is compared. Old
log-probabilities that the sampler recorded, which may differ from any forward of the trainer: of them
SMP004 speaks. On a GPU the comparison is never proof.

Fix: Compute old log-probabilities once for each batch, before its first update, with the same code, ids and
temperature as the loss, and keep them by the id of the row.

References: https://arxiv.org/abs/1707.06347, https://github.com/huggingface/trl/issues/2608
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step
from truing.doctor.forward_difference import ForwardDifference, forward_difference
from truing.doctor.rule import Rule
from truing.doctor.rules.smp004 import plain
from truing.doctor.verdict import Claim, Verdict


def measure(step: Step) -> ForwardDifference:
    """As it was compared beside the update, and where the old ones are farthest off."""
    return forward_difference(step, "old")


def judge(found: ForwardDifference) -> Iterator[Claim]:
    """The trainer is right, and what it is compared with is not."""
    if found.differs("old") and found.agrees("trainer"):
        old, new = (found.largest[name] for name in ("old", "trainer"))
        yield Claim(
            Verdict.PROVEN if found.is_certain("old") else Verdict.SUSPECT,
            f"before the first update old log-probabilities are up to {old:.3g} nats from a plain"
            " forward, and the trainer's new ones are not",
            got=f"old {old:.3g}, new {new:.3g} over {found.tokens} tokens",
            expected=f"both {found.expected_text('old')}",
            row=found.row,
            start=found.token,
            end=found.token + 1,
            specificity=1.5,
        )


def example() -> Step:
    """They are those of the generation before."""
    return plain(old=2.5)


def scored_apart() -> Step:
    """They were scored in other micro-batches."""
    return plain(old=3e-5)


RULE = Rule(
    code="RAT008",
    name="old-not-plain",
    kind="M",
    needs=("facts.plain", "old_logprob"),
    taints=("policy",),
    # where the sampler's are the old ones, or rows are of a later update, a look does not ask
    applies=lambda step: (
        step.setup.algo not in ("sft", "rft")
        and step.setup.correction != "off"
        and "old" in step.facts.get("plain", {"old": 0})
    ),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(scored_apart,),
)
