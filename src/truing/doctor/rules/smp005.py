"""SMP005: The trainer's distribution differs from the declared one.

What: The trainer's log-probabilities differ from those of a plain forward of the same tokens: it uses other
positions, another attention mask, another temperature, or dropout.

Why it is silent: A wrong forward is wrong for every token alike, and its loss still falls. Trainer and
reference are wrong together, so the KL is 0 as expected. Only a sample scored alone, without padding or a
neighbour, shows it.

How it is measured: The check scores some samples once more, one at a time, with the model's own forward and
the declared sampling parameters. In float32 forty times the difference of a plain forward from itself in
another shape is allowed. Without that measurement, two thousandths of a nat, or forty times the trainer's
difference from itself in other micro-batches. In another precision the mean over tokens counts: four times
the change by random rounding is allowed, and twenty times at most tokens is proof, on a GPU a hundred times.
If the sampler is as far off, both
differ from the declared sampling parameters.

Healthy look-alikes: A forward in bfloat16, which is off by a tenth of a nat at single tokens. Differences of
5e-5 nats between a sample alone and the same sample among others.

Fix: Score one sample alone and inside its batch. A difference between the two is padding, positions or the
mask between packed rows. If both agree, check the sampling parameters: temperature, penalties, support.

References: https://github.com/huggingface/trl/issues/6789, docs/notation.md
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step
from truing.doctor.forward_difference import forward_difference
from truing.doctor.rule import Rule
from truing.doctor.rules.smp004 import plain
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count


def judge(step: Step) -> Iterator[Claim]:
    """Claim a trainer that differs, alone or together with the sampler."""
    difference = forward_difference(step, "trainer")
    if difference.differs("itself") and difference.is_certain("itself"):
        behind = difference.largest["itself"]
        yield Claim(
            Verdict.PROVEN,
            f"tokens after a sample change its log-probabilities by up to {behind:.3g} nats: the"
            " attention is not causal",
            got=f"{behind:.3g} over {with_count(difference.tokens, 'token')}",
            expected=f"{difference.expected_text('itself')}: later tokens have no effect on a token",
            specificity=4,
        )
        return
    if difference.differs("trainer"):
        far = difference.largest["trainer"]
        other = (
            f", and so is the sampler, by {difference.largest['sampler']:.3g}"
            if difference.differs("sampler")
            else ""
        )
        other += (
            "; the same samples alone are right: padding, positions, or the mask between samples"
            if difference.agrees("alone")
            else ""
        )
        yield Claim(
            Verdict.PROVEN if difference.is_certain("trainer") else Verdict.SUSPECT,
            f"the trainer is up to {far:.3g} nats from a plain forward{other}",
            got=f"{far:.3g} over {with_count(difference.tokens, 'token')}",
            expected=difference.expected_text("trainer"),
            row=difference.row,
            start=difference.token,
            end=difference.token + 1,
            specificity=2,
        )


def example() -> Step:
    """Samples are padded on the left, and positions count the padding."""
    return plain(trainer=6.0)


RULE = Rule(
    code="SMP005",
    name="trainer-not-plain",
    kind="M",
    needs=("facts.plain",),
    taints=("sft", "policy"),
    judge=judge,
    example=example,
    lookalikes=(plain,),
)
