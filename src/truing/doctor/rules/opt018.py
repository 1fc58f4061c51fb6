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

from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count


def judge(step: Step) -> Iterator[Claim]:
    """Claim any weight that is not as declared, or not as in the files."""
    fact = step.facts["declared_weights"]
    if count := fact["count"]:
        yield Claim(
            Verdict.PROVEN,
            f"{with_count(count, 'weight')} that {'trains' if count == 1 else 'train'}"
            f" {'is' if count == 1 else 'are'} not as declared",
            got="; ".join(fact["wrong"]),
            expected=f"the {fact['declared']} weights that the recipe trains on this model, in float32",
            specificity=4,
        )
    if count := fact.get("other_count", 0):
        yield Claim(
            Verdict.PROVEN,
            f"{with_count(count, 'weight')} before the first step {'is' if count == 1 else 'are'} not as"
            " declared",
            got="; ".join(fact.get("other", ())),
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
    judge=judge,
    example=example,
    lookalikes=(as_declared,),
)
