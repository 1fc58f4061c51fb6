"""SMP005: The trainer computes another distribution than it should.

What: The trainer's log-probabilities differ from those of a plain forward of the same tokens: it sees other
positions, another attention mask, another temperature, or dropout.

Why it is silent: A forward that is wrong is wrong for every token alike, and still falls in loss. Trainer
and reference are wrong together, so the KL is 0 where it should be. Only a row that is scored alone,
without a pad or a neighbour, tells.

How it is measured: Some rows are scored once more, one at a time, by the model's own forward and the
declared contract. In float32 forty times what a plain forward differs from itself in another shape is
allowed; where nobody measured that, two thousandths of a nat, or forty times what the trainer differs from
itself in other micro-batches. In another precision it is the mean over tokens that counts: it may be
four times what rounding at random changes, and is proven at twenty times. Where the sampler is as far off,
both do something that the contract does not say.

Healthy look-alikes: A forward in bfloat16, which is off by a tenth of a nat at single tokens; on a GPU the
comparison is never proof. Differences of 5e-5 nats between a row alone and the same row among others.

Fix: Score one row alone and inside its batch: what differs is padding, positions or the mask between packed
rows. What is the same in both is the contract: temperature, penalties, support.

References: https://github.com/huggingface/trl/issues/6789, docs/notation.md
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step
from truing.doctor.forward_difference import ForwardDifference, forward_difference
from truing.doctor.rule import Rule
from truing.doctor.rules.smp004 import plain
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count


def measure(step: Step) -> ForwardDifference:
    """As it was compared beside the update, and where the trainer is farthest off."""
    return forward_difference(step, "trainer")


def judge(found: ForwardDifference) -> Iterator[Claim]:
    """The trainer is off: alone, or with the sampler beside it; or nobody knows where it is."""
    if found.differs("itself") and found.is_certain("itself"):
        behind = found.largest["itself"]
        yield Claim(
            Verdict.PROVEN,
            f"tokens behind a row change its log-probabilities by up to {behind:.3g} nats: the policy's"
            " attention sees the future",
            got=f"{behind:.3g} over {with_count(found.tokens, 'token')}",
            expected=f"{found.expected_text('itself')}: nothing behind a token may matter to it",
            specificity=4,
        )
        return
    if found.differs("trainer"):
        far = found.largest["trainer"]
        other = (
            f", and so is the sampler, by {found.largest['sampler']:.3g}" if found.differs("sampler") else ""
        )
        other += (
            "; the same rows alone are right: padding, positions, or the mask between rows"
            if found.agrees("alone")
            else ""
        )
        yield Claim(
            Verdict.PROVEN if found.is_certain("trainer") else Verdict.SUSPECT,
            f"the trainer is up to {far:.3g} nats from a plain forward{other}",
            got=f"{far:.3g} over {with_count(found.tokens, 'token')}",
            expected=found.expected_text("trainer"),
            row=found.row,
            start=found.token,
            end=found.token + 1,
            specificity=2,
        )


def example() -> Step:
    """Rows are padded on the left, and positions count the pads."""
    return plain(trainer=6.0)


RULE = Rule(
    code="SMP005",
    name="trainer-not-plain",
    kind="M",
    needs=("facts.plain",),
    taints=("sft", "policy"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(plain,),
)
