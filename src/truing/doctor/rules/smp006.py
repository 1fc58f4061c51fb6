"""SMP006: A row is scored otherwise in a batch than by itself.

What: The trainer gives a row other log-probabilities when it stands beside others than when it stands
alone, and alone it agrees with a plain forward.

Why it is silent: Which rows stand together changes from step to step, so what is wrong looks like noise.
Left pads without position ids, a missing attention mask, or neighbours in a packed row move
log-probabilities by whole nats, and the loss goes on.

How it is measured: The same rows are scored together, one by one, and by a plain forward without any
padding; the largest difference over all tokens that are trained.

Healthy look-alikes: Differences of rounding: 4e-5 nats in float32 with the size of the batch. On a GPU in
bfloat16 the rule does not prove anything.

Fix: Give position ids that begin anew with each row, and a mask that keeps pads and neighbours out; then
score one row alone and in a batch, and compare.

References: https://huggingface.co/blog/the_n_implementation_details_of_rlhf_with_ppo
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.rounding_tolerance import measured_rounding as rounding
from truing.doctor.rounding_tolerance import tolerance
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict

APART = 1e-2
"""Nats that no rounding in float32 explains, where nobody measured it."""


class Measured(NamedTuple):
    """The largest differences, nats."""

    together: float  # of rows side by side to a plain forward
    alone: float  # of the same rows one by one
    apart: float  # between the two
    coarse: bool  # not in float32 on a CPU
    bound: float  # what rounding may come to


def measure(step: Step) -> Measured:
    """As they were compared beside the update."""
    plain = step.facts["plain"]
    apart = step.facts["null"]["logprob"]
    bound = tolerance(rounding(step.facts), None, APART) or APART
    return Measured(plain["trainer"], plain["alone"], apart, plain["device"] != "cpu", bound)


def judge(found: Measured) -> Iterator[Claim]:
    """Alone it is right, and in company it is not."""
    if found.apart > found.bound and found.alone <= found.bound < found.together:
        yield Claim(
            Verdict.SUSPECT if found.coarse else Verdict.PROVEN,
            f"rows change each other: in a batch up to {found.together:.3g} nats from a plain forward,"
            f" alone {found.alone:.2g}",
            got=f"{found.apart:.3g} nats between the two",
            expected=f"the same to rounding: within {found.bound:.2g}",
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
    """Position ids were left out beside left pads."""
    return _scored(6.0, 3e-6)


def in_another_order() -> Step:
    """Sums were taken in another order."""
    return _scored(4e-5, 3e-6)


def as_measured() -> Step:
    """The same, where rounding was measured."""
    return changed_step(_scored(4e-5, 3e-6), facts={"null": {"logprob": 4e-5, "rounding": 1e-5}})


RULE = Rule(
    code="SMP006",
    name="rows-change-each-other",
    kind="M",
    needs=("facts.plain", "facts.null"),
    taints=("sft", "policy"),
    applies=lambda step: "alone" in step.facts.get("plain", {"alone": None}),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(in_another_order, as_measured),
)
