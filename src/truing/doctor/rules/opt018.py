"""OPT018: Other weights train than the recipe declares.

What: The optimizer steps other weights than the recipe's adapter, or full training, has on this model: some
are missing, some are not declared, or they have another shape or dtype, or an adapter is scaled by another
factor. Or, before the first step, weights are not those of the model's files in the declared dtype.

Why it is silent: An adapter on a part of the layers learns, only less. A frozen half of it, a rank of 8 in
place of 16, and weights that were rounded to bfloat16 at loading all give a loss that falls. What is compared
later begins from these weights, on both sides.

How it is measured: At every step the names, shapes and dtypes of the weights in the optimizer are compared
with those that the recipe's targets and rank give on the layers in the model's `config.json`; trained weights
are float32, and each adapted layer multiplies B A by alpha ÷ rank. In a run's first step each weight that the
files have is compared bit by bit with theirs, in the declared dtype, and B of a new adapter with 0. In a
stage's first step the head of a new critic is compared with 0, and a trunk of its own with the policy's.

Healthy look-alikes: A saved adapter, whose weights are those of its file. Weights that the files hold
otherwise, as experts in one tensor each, and quantized layers: these are left out. Modules that keep float32
beside a lower dtype.

Fix: Compare `lora.targets` with the layers that have an adapter; look for code that sets `requires_grad`, or
that casts the model after it is loaded.

References: https://arxiv.org/abs/2106.09685, docs/recipes.md
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count


class Measured(NamedTuple):
    """Weights that differ from the declaration, and from the files."""

    declared: int
    wrong: Sequence[str]  # some, each with what is wrong
    count: int
    other: Sequence[str]
    other_count: int


def measure(step: Step) -> Measured:
    """Read the comparison recorded with the step."""
    fact = step.facts["declared_weights"]
    other = fact.get("other", ()), fact.get("other_count", 0)
    return Measured(fact["declared"], fact["wrong"], fact["count"], *other)


def judge(measured: Measured) -> Iterator[Claim]:
    """Claim any weight that is not as declared, or not as in the files."""
    if measured.count:
        yield Claim(
            Verdict.PROVEN,
            f"{with_count(measured.count, 'weight')} that {'trains' if measured.count == 1 else 'train'}"
            f" {'is' if measured.count == 1 else 'are'} not as declared",
            got="; ".join(measured.wrong),
            expected=f"the {measured.declared} weights that the recipe trains on this model, in float32",
            specificity=4,
        )

    if measured.other_count:
        yield Claim(
            Verdict.PROVEN,
            f"{with_count(measured.other_count, 'weight')} before the first step"
            f" {'is' if measured.other_count == 1 else 'are'} not as declared",
            got="; ".join(measured.other),
            expected="the numbers of the model's files, in the declared dtype; 0 for B of a new adapter and"
            " the head of a new critic, whose own trunk is the policy's",
            specificity=4.2,
        )


def _compared(**fact: object) -> Step:
    same = {"declared": 14, "wrong": [], "count": 0}
    return changed_step(example_step(), facts={"declared_weights": same | fact})


def example() -> Step:
    """An adapter for all linear layers is on attention alone."""
    wrong = ["model.layers.0.mlp.up_proj.lora_A.weight is not trained"]
    return _compared(wrong=wrong, count=6)


def rounded() -> Step:
    """Weights were rounded when they were loaded."""
    other = ["model.norm.weight differs in 80 of 80 numbers, by up to 0.0039"]
    return _compared(other=other, other_count=1)


def scaled() -> Step:
    """An adapter is scaled by alpha ÷ √rank."""
    return _compared(wrong=["model.layers.0.mlp.up_proj multiplies B A by 8, not by 4"], count=14)


def as_declared() -> Step:
    """Every weight is as declared and as in the files."""
    return _compared(other=[], other_count=0)


RULE = Rule(
    code="OPT018",
    name="weights-not-as-declared",
    kind="E",
    needs=("facts.declared_weights",),
    taints=("sft", "policy", "critic"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(as_declared,),
)
