"""SMP006: A sample's score depends on its batch.

What: The trainer gives a sample other log-probabilities in a batch than alone, and alone it agrees with a
plain forward. Or its log-probabilities and its gradient depend on the size of its micro-batches.

Why it is silent: The samples of a batch change from step to step, so the error looks like noise. Left padding
without position ids, a missing attention mask, or neighbours in a packed row change log-probabilities by
whole nats, and the loss goes on.

How it is measured: The same samples are scored together, one by one, and by a plain forward without any
padding; the largest difference over all trained tokens. Where the sum of the gradients of smaller
micro-batches is not the optimizer's gradient (OPT009), the log-probabilities of both are compared too.

Healthy look-alikes: Rounding: 4e-5 nats in float32 with the size of the batch. In another precision the rule
is never proof.

Fix: Give each sample position ids from 0, and a mask that excludes padding and neighbours. Then score one
sample alone and in a batch, and compare.

References: https://huggingface.co/blog/the_n_implementation_details_of_rlhf_with_ppo
"""

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.forward_difference import MEAN_MULTIPLES
from truing.doctor.rounding_tolerance import computes_in_float32, tolerance
from truing.doctor.rounding_tolerance import measured_rounding as rounding
from truing.doctor.rule import Rule
from truing.doctor.rules.opt006 import differ
from truing.doctor.rules.opt009 import RELATIVE
from truing.doctor.verdict import Claim, Verdict

APART = 1e-2
"""Nats beyond rounding in float32, without a measurement."""

BY_SIZE = 1e-4
"""Nats between forwards in float32 whose gradients differ by more than rounding."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim samples that are right alone and wrong in a batch, and an effect of the size of micro-batches."""
    apart = list(_apart(step))
    yield from apart
    sums = step.facts.get("row_gradients")
    if apart or not sums or not computes_in_float32(sums["device"]):
        return
    by_size = sums.get("logprob", 0.0)
    if by_size > BY_SIZE and differ(sums, RELATIVE, MEAN_MULTIPLES):
        yield Claim(
            Verdict.PROVEN,
            "samples change each other: log-probabilities depend on the size of micro-batches, and so does"
            " the gradient",
            got=f"{by_size:.3g} nats between smaller micro-batches and the trainer's own",
            expected=f"the same up to rounding: within {BY_SIZE:g}",
            specificity=3,
        )


def _apart(step: Step) -> Iterator[Claim]:
    """Claim samples that agree with a plain forward alone, and not together."""
    plain = step.facts.get("plain", {})
    if "alone" not in plain or "null" not in step.facts:
        return
    together, alone, apart = plain["trainer"], plain["alone"], step.facts["null"]["logprob"]
    bound = tolerance(rounding(step.facts), None, APART, plain["tokens"]) or APART
    if apart > bound and alone <= bound < together:
        yield Claim(
            Verdict.PROVEN if computes_in_float32(plain["device"]) else Verdict.SUSPECT,
            f"samples change each other: in a batch up to {together:.3g} nats from a plain forward,"
            f" alone {alone:.2g}",
            got=f"{apart:.3g} nats between the two",
            expected=f"the same up to rounding: within {bound:.2g}",
            specificity=3,
        )


def _scored(together: float, alone: float) -> Step:
    plain = {
        "tokens": 64,
        "device": "cpu",
        "trainer": together,
        "alone": alone,
        "sampler": alone,
        "where": {},
    }
    return changed_step(example_step(), facts={"plain": plain, "null": {"logprob": abs(together - alone)}})


def example() -> Step:
    """Position ids are missing with left padding."""
    return _scored(6.0, 3e-6)


def by_size() -> Step:
    """A branch of a tree of rows sees its neighbour, before any row is computed alone."""
    known = {"rows": 8, "device": "cpu", "norm": 0.5, "trainer": 0.5, "cosine": 0.99, "pulled": 2.0}
    sums = known | {"free": 1.0, "difference": 0.07, "logprob": 0.02}
    return changed_step(example_step(), facts={"row_gradients": sums})


def in_another_order() -> Step:
    """Sums in another order."""
    return _scored(4e-5, 3e-6)


def as_measured() -> Step:
    """The same, with measured rounding."""
    return changed_step(_scored(4e-5, 3e-6), facts={"null": {"logprob": 4e-5, "rounding": 1e-5}})


RULE = Rule(
    code="SMP006",
    name="rows-change-each-other",
    kind="M",
    needs=("facts.plain | facts.row_gradients",),
    taints=("sft", "policy"),
    applies=lambda step: (
        "alone" in step.facts.get("plain", {"alone": None})
        or "logprob" in step.facts.get("row_gradients", {})
    ),
    judge=judge,
    example=example,
    lookalikes=(in_another_order, as_measured),
)
