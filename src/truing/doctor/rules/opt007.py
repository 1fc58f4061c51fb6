"""OPT007: Weights that are not trained have changed.

What: The digest of the weights that an adapter stands on, or of a frozen part, is not the one that was
noted.

Why it is silent: A base that drifts computes like any other. An adapter that is merged and taken out again
leaves rounding behind each time; a parameter that slipped into the optimiser is moved by decay alone. What
is saved is the adapter, so the model that was trained is lost.

How it is measured: A digest over the bits of all weights that are not trained, beside the update, against
the one from before the stage.

Healthy look-alikes: Buffers and caches that a model keeps beside its weights: they are no part of it. Equal
digests prove nothing, for they are sums; unequal ones do.

Fix: Merge into a copy, never in place; give the optimiser only what requires a gradient; load the base
once.

References: https://arxiv.org/abs/2106.09685
"""

from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict


class Measured(NamedTuple):
    """Digests of the frozen weights."""

    digest: str
    declared: str


def measure(step: Step) -> Measured:
    """The digest now, and as it was noted."""
    return Measured(step.facts["frozen"]["digest"], step.facts["frozen"]["declared"])


def judge(found: Measured) -> Iterator[Claim]:
    """Digests are equal or not."""
    if found.digest != found.declared:
        yield Claim(
            Verdict.PROVEN,
            "weights that are not trained have changed",
            got=found.digest,
            expected=found.declared,
            specificity=2.5,
        )


def example() -> Step:
    """An adapter was merged in place, and taken out again."""
    return changed_step(example_step(), facts={"frozen": {"digest": "c", "declared": "b"}})


def still() -> Step:
    """Nothing has changed."""
    return changed_step(example_step(), facts={"frozen": {"digest": "b", "declared": "b"}})


RULE = Rule(
    code="OPT007",
    name="frozen-weights-changed",
    kind="E",
    needs=("facts.frozen",),
    taints=("sft", "policy", "reference"),
    applies=lambda step: step.setup.lora is not False,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(still,),
)
