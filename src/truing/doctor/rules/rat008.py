"""RAT008: Old log-probabilities differ from a plain forward before the first optimizer step.

What: The denominator of the ratio does not follow from the current weights and samples: it is of another
generation, of other samples, of other weights, or has added noise.

Why it is silent: A ratio other than 1 in the first optimizer step looks like a policy that has moved. The
clip then removes the gradient of some tokens and scales that of others, and the rest learns.

How it is measured: Before the first optimizer step of a batch the check scores some samples once more, one by
one, without padding, and compares them with the recorded old log-probabilities. The trainer's own forward of
the same tokens must agree with the plain one. The normal difference is a plain forward from itself in another
shape, or in another precision than float32 under random rounding.

Healthy look-alikes: Optimizer steps after the first, whose weights have moved: the rule does not compare
those. Old log-probabilities that the sampler recorded, which may differ from any forward of the trainer:
SMP004 covers those.

Fix: Compute old log-probabilities once for each batch, before its first optimizer step, with the same code,
ids and temperature as the loss, and keep them by the id of the sample.

References: https://arxiv.org/abs/1707.06347, https://github.com/huggingface/trl/issues/2608
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step
from truing.doctor.forward_difference import forward_difference
from truing.doctor.rule import Rule
from truing.doctor.rules.smp004 import plain
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim old log-probabilities that differ while the trainer's agree."""
    difference = forward_difference(step, "old")
    if difference.differs("old") and difference.agrees("trainer"):
        old, new = (difference.largest[name] for name in ("old", "trainer"))
        yield Claim(
            Verdict.PROVEN if difference.is_certain("old") else Verdict.SUSPECT,
            f"before the first optimizer step old log-probabilities are up to {old:.3g} nats from a plain"
            " forward, and the trainer's new ones are not",
            got=f"old {old:.3g}, new {new:.3g} over {difference.tokens} tokens",
            expected=f"both {difference.expected_text('old')}",
            row=difference.row,
            start=difference.token,
            end=difference.token + 1,
            specificity=1.5,
        )


def example() -> Step:
    """They belong to the generation before."""
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
    # an audit does not check the sampler's numbers, or samples of a later optimizer step
    applies=lambda step: (
        step.setup.algo not in ("sft", "rft")
        and step.setup.correction != "off"
        and "old" in step.facts.get("plain", {"old": 0})
    ),
    judge=judge,
    example=example,
    lookalikes=(scored_apart,),
)
