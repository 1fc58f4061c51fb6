"""OPT006: The gradient differs from a plain backward.

What: The gradient of the step, and that of a plain computation of the same loss from the same samples,
differ by more than the trainer differs from itself.

Why it is silent: A gradient of the wrong samples, of a part of the weights, or through a cut path has a norm
like any other. The token gradients may be as declared, and still not reach the weights.

How it is measured: A plain forward computes some samples again one at a time in float32, without packing,
recomputation or a shared prefix, and their loss goes backward through the model's own forward. The rule
compares both gradients as vectors: the length of their difference, their angle, and the ratio of their
lengths; those of the value loss, in a trunk that it shares too, apart from those of the other terms. If they
differ by two thousandths, the normal difference is measured: the trainer against itself in other
micro-batches. In float32 twenty times that is allowed, or twice the last digit of the largest attention
score: fused attention knows its softmax no better in the backward pass. In another precision it is three
times the normal difference, or three times the change by random rounding if that is larger: healthy runs
reach 1.2 times. Twenty times the change by random rounding is proof there, on a GPU a hundred times, and a
quarter of the gradient at least.

Healthy look-alikes: A difference of a hundredth in bfloat16, if the trainer is as far from itself. Samples
without an advantage, whose gradient is 0 in both. A run that diverges: attention scores of some 100,000
change 3 % of the gradient. In a mixture of experts along wrong routes the comparison is never proof: it is
their result (SMP012).

Fix: The angle shows the cause. The same direction with another length is a denominator or a weight; a right
angle is other samples, or a detached part; the opposite direction is a sign.

References: https://arxiv.org/abs/1604.06174, docs/control.md
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rounding_tolerance import computes_in_float32, proof_multiples
from truing.doctor.route_difference import are_routes_wrong
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count

RELATIVE, MEASURED, TIMES = 0.02, 2e-3, 20
"""Of the gradient's length, without and with a measurement of the trainer against itself;
and multiples of that."""

ATTENTION_TIMES = 2
"""Multiples of the last digit of the largest attention score: in 90 audits of runs that diverge, or whose
attention was scaled by up to 3000, differences reach 0.8."""

FLOOR = 1e-4
"""Of the token gradients: a shorter gradient is of certain tokens, and is lost in float32."""

NOTHING = 1e-4
"""Sum of token gradients: below it they are rounding of log-probabilities."""


COARSE_TIMES = 3
"""Multiples of the larger of both in another precision than float32, where they contain all that rounds."""

FAR = 0.25
"""Of the gradient's length, in another precision than float32: a router with another expert for a few
tokens changes less."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim two thousandths, or twenty times the trainer's difference from itself; of both losses."""
    fact, other_routes = step.facts["gradient"], are_routes_wrong(step)
    losses = {"gradient": fact} | ({"value loss's gradient": fact["values"]} if "values" in fact else {})
    for name, each in losses.items():
        if differ(each):
            # wrong routes are the cause themselves (SMP012), and the angle says nothing of the loss
            yield Claim(
                Verdict.PROVEN if is_sure(each) and not other_routes else Verdict.SUSPECT,
                f"the {name} of {with_count(each['rows'], 'sample')} differs from a plain"
                f" backward{reading(each)}",
                got=f"a length of {each['trainer']:.3g}, cosine {each.get('cosine', math.nan):.3g},"
                f" {each['difference']:.3g} apart",
                expected=f"a length of {each['norm']:.3g}; the trainer differs from itself by"
                f" {each.get('null', 0.0):.2g}",
                specificity=0.8,
            )


def is_sure(fact: Mapping[str, Any]) -> bool:
    """Return whether gradients are of float32, or of another precision with a large difference."""
    if "rounding" not in fact:
        return computes_in_float32(fact["device"])
    least = max(proof_multiples(fact["device"]) * fact["rounding"], FAR * fact["norm"])
    return fact["difference"] > least


def differ(fact: Mapping[str, Any], relative: float = RELATIVE, coarse_times: float = COARSE_TIMES) -> bool:
    """Return whether the difference of two gradients exceeds rounding."""
    null = fact.get("null", 0.0)
    relative = min(relative, MEASURED) if null else relative
    least = max(relative * fact["norm"], RELATIVE * FLOOR * fact["pulled"])
    if "rounding" in fact:
        least = max(least, coarse_times * max(fact["rounding"], null))
    else:
        least = max(least, TIMES * null, ATTENTION_TIMES * fact.get("attention", 0.0))
    return fact["pulled"] >= NOTHING and fact["difference"] > least


def reading(fact: Mapping[str, Any]) -> str:
    """Return the diagnosis from angle and length, as text."""
    plain, trainer, difference = fact["norm"], fact["trainer"], fact["difference"]
    cosine = fact.get("cosine", math.nan)
    if trainer < 1e-6 * plain:
        return ": it is 0, as with a detached loss"
    if plain and abs(difference - abs(trainer - plain)) < 0.1 * difference:
        return f": it is {trainer / plain:.3g} times as long, as with a wrong denominator or weight"
    if cosine < -0.9:
        return ": it has the opposite direction, as with a wrong sign"
    if abs(cosine) < 0.1:
        return ": the two are orthogonal, as with other samples"
    return ": a part is missing, from other samples, or random as with dropout"


def _of(**lengths: object) -> Step:
    known = {
        "rows": 4,
        "device": "cpu",
        "norm": 0.5,
        "trainer": 0.5,
        "cosine": 1.0,
        "pulled": 2.0,
        "null": 1e-6,
    }
    return changed_step(example_step(), facts={"gradient": known | {"difference": 2e-6} | lengths})


def a_kl_alone_at_the_start() -> Step:
    """Groups of equal reward, and a reference equal to the policy: the gradient is rounding."""
    return _of(norm=1e-9, trainer=9e-10, difference=4e-10, pulled=3e-8)


def example() -> Step:
    """Half the samples are detached."""
    return _of(trainer=0.35, cosine=0.7, difference=0.36)


def bfloat16() -> Step:
    """The trainer differs from itself as much."""
    return _of(difference=0.015, null=0.01)


def rounded() -> Step:
    """In bfloat16 the trainer differs from itself by more than random rounding shows."""
    return _of(device="cpu, torch.bfloat16", difference=0.011, null=0.01, rounding=0.003)


def diverging() -> Step:
    """Attention scores are large, and so is their last digit."""
    return _of(norm=139.0, trainer=139.0, difference=0.34, null=9e-6, attention=0.5)


def certain() -> Step:
    """All tokens are nearly certain: the gradient is rounding."""
    return _of(norm=1e-9, trainer=2e-8, cosine=0.0, difference=2e-8, null=1e-9)


RULE = Rule(
    code="OPT006",
    name="gradient-not-plain",
    kind="M",
    needs=("facts.gradient",),
    taints=("sft", "policy"),
    judge=judge,
    example=example,
    lookalikes=(bfloat16, rounded, diverging, certain, a_kl_alone_at_the_start),
)
