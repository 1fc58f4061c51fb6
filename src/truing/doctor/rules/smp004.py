"""SMP004: The sampler's distribution differs from the declared one.

What: The sampler's recorded log-probabilities differ from those of a plain forward of the same tokens, and
the trainer's do not. The fault is in the sampler: its weights, its processors, its cache, or its records.
Or the ids that it recorded as possible are not those of the declared top-k, top-p and min-p.

Why it is silent: No metric checks the sampler's numbers. The trainer then sees a policy that has moved
before any optimizer step, weighs tokens by meaningless ratios, and trains the wrong ones. Recorded ids are
the trainer's too, so that a wrong truncation is the same on both sides.

How it is measured: The check scores some samples once more, one at a time, with the model's own forward and
the declared sampling parameters, and compares both log-probabilities of each token with it. In float32
forty times the difference of a plain forward from itself in another shape is allowed. Without that
measurement, two thousandths of a nat, or forty times the trainer's difference from itself. In another
precision it is four times the mean change by random rounding; most tokens twenty times off are proof, on a
GPU a hundred times. The declared truncation is computed again
from the plain forward, and it is measured by how many nats that would have to differ to give the recorded
ids; the same tolerance holds.

Healthy look-alikes: An engine in bfloat16 on a GPU, which is off by a tenth of a nat at single tokens.
Log-probabilities of 0 of the only possible tokens. In a mixture of
experts whose recorded routes are wrong (SMP012) the plain forward is not the sampler's, and nothing is proof.

Fix: Compare the sampling parameters with the engine's settings: temperature, truncation, penalties, banned
stops. Request log-probabilities after its processors. Check its weights (SMP002, SMP003) before its
arithmetic.

References: https://github.com/huggingface/trl/issues/4159, https://github.com/huggingface/trl/issues/6789
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.forward_difference import STREAMS, forward_difference
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count


def judge(step: Step) -> Iterator[Claim]:
    """Claim a sampler that differs while the trainer agrees, and a support that is not the declared one."""
    difference, of_support = (forward_difference(step, name) for name in ("sampler", "support"))
    if not {"sampler", "support"} & set(difference.largest):
        yield Claim(Verdict.NOT_CHECKED, "the sampler's log-probabilities beside a plain forward")
    if of_support.differs("support"):
        yield Claim(
            Verdict.PROVEN if of_support.is_certain("support") and of_support.on_policy else Verdict.SUSPECT,
            "the ids recorded as possible are not those of the declared top-k, top-p and min-p",
            got=f"log-probabilities would have to be {of_support.largest['support']:.3g} nats off for them",
            expected=of_support.expected_text("support"),
            row=of_support.row,
            start=of_support.token,
            end=of_support.token + 1,
            specificity=2.3,
        )

    if difference.differs("sampler") and difference.agrees("trainer"):
        sampler, trainer = (difference.largest[name] for name in ("sampler", "trainer"))
        yield Claim(
            Verdict.PROVEN if difference.is_certain("sampler") and difference.on_policy else Verdict.SUSPECT,
            f"the sampler is up to {sampler:.3g} nats from a plain forward, and the trainer is not",
            got=f"sampler {sampler:.3g}, trainer {trainer:.3g} over {with_count(difference.tokens, 'token')}",
            expected=f"both {difference.expected_text('sampler')}",
            row=difference.row,
            start=difference.token,
            end=difference.token + 1,
            specificity=2,
        )


def plain(**nats: float) -> Step:
    """Return a step with a plain forward, and the difference of each from it."""
    known = {"tokens": 16, "rows": 4, "device": "cpu", "trainer": 3e-6, "alone": 3e-6, "sampler": 2e-5} | nats
    known["where"] = dict.fromkeys(STREAMS, ("s0", 5))
    return changed_step(example_step(), facts={"plain": known, "null": {"logprob": 4e-5}})


def wrong_support() -> Step:
    """The nucleus is chosen before the temperature."""
    return plain(support=0.3)


def at_an_edge() -> Step:
    """The last id of a nucleus, which rounding decides."""
    return plain(support=1e-3)


def another_engine() -> Step:
    """An engine in bfloat16 beside a trainer in float32; its publication measured the difference."""
    rows = {"largest": 0.12, "median": 0.02, "tolerance": 0.2}
    step = plain(sampler=0.2)
    return changed_step(step, facts={**step.facts, "publication": {"version": 0, "rows": rows}})


def example() -> Step:
    """The sampler alone has a penalty."""
    return plain(sampler=0.8)


RULE = Rule(
    code="SMP004",
    name="sampler-not-plain",
    kind="M",
    needs=("facts.plain",),
    taints=("policy",),
    applies=lambda step: is_sampled(step) and step.setup.algo not in ("sft", "rft") and not step.setup.ahead,
    judge=judge,
    example=example,
    lookalikes=(plain, another_engine, at_an_edge),
)
