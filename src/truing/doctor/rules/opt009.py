"""OPT009: The optimizer's gradient differs from the sum over the step's samples.

What: The gradient at the optimizer step is not the sum of the samples' own gradients, clipped as declared.

Why it is silent: Each token gradient is right, and no metric shows later changes to the gradient: a
micro-batch lost or counted twice, a layer whose gradient is cleared, a sign, a clip of each micro-batch, a
gradient left over from the step before. The loss and its parts are those of a healthy run, and the norm
is a number like any other.

How it is measured: In an audit all samples of the step go backward in small parts, before the optimizer step,
and the check adds up their gradients. When the optimizer runs, the check compares its gradient with the sum
as a
vector: length, angle, and the length of the difference. In TRL the sum is that of a plain forward of each
sample, with the token gradients of the trainer's own loss. With several processes (ranks) it is over the
samples of all, whose losses DDP averages, and is compared with the gradient of each. In another precision
than float32 the check computes the sum once more with random rounding in each module: four times that change
is allowed, and twenty times is proof, on a GPU a hundred times. The check changes a weight without a gradient
by a hundredth: if log-probabilities change, and half as much with half the change, a path is cut. In another
precision it changes by a sixth, and the change must be twenty times that by random rounding.

Healthy look-alikes: Rounding in another order, a few millionths in float32; more in a run that diverges,
whose attention scores are so large that their last digit shows: twice that is allowed. Certain tokens, whose
gradient is rounding. A of an adapter whose B is still 0: it has no gradient, and changes nothing. Dropout and
noise, which make another gradient each time: the rule does not compare them.

Fix: The angle shows the cause. The opposite direction is a sign. The same direction with another length is
a micro-batch that counts twice, a wrong number of accumulated micro-batches, or a clip of each. Anything
else is a part that is lost, cleared, or left over. A rank with the gradient of its own samples did not
take part in the average: `no_sync` was left on, or the forward was that of the model below DDP.

References: https://huggingface.co/blog/gradient_accumulation, docs/control.md
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.forward_difference import MEAN_MULTIPLES
from truing.doctor.rounding_tolerance import least_effect, proof_multiples
from truing.doctor.rule import Rule
from truing.doctor.rules.opt006 import differ, is_sure, reading
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count

RELATIVE = 2e-3
"""Of the gradient's length."""

FREE = 1e-3
"""Sum of token gradients at uncertain tokens: above it a gradient of exactly 0 is not rounding."""

MOVED = 1e-4
"""Nats per unit of token gradient by which log-probabilities move: far beyond unmeasured rounding."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim two thousandths: rounding is a thousand times smaller."""
    fact = step.facts["row_gradients"]
    verdict = Verdict.PROVEN if is_sure(fact) else Verdict.SUSPECT
    if differ(fact, RELATIVE, MEAN_MULTIPLES):
        rounding = f"; rounding changes {fact['rounding']:.2g} of it" if "rounding" in fact else ""
        yield Claim(
            verdict,
            f"the optimizer's gradient is not the sum over its {with_count(fact['rows'], 'sample')}"
            f"{_of_ranks(fact) or reading(fact)}",
            got=f"a length of {fact['trainer']:.3g}, cosine {fact.get('cosine', math.nan):.3g},"
            f" {fact['difference']:.3g} apart",
            expected=f"a length of {fact['norm']:.3g}{rounding}",
            specificity=1,
        )
    elif fact["norm"] == fact["trainer"] == 0 and fact["free"] > FREE:
        yield Claim(
            verdict,
            f"{fact['rows']} samples have token gradients, and no trained weight has a gradient",
            got="0 at all of them",
            expected="a gradient: the answers depend on trained weights",
            specificity=1.5,
        )
    if (cut := fact.get("missing_gradient")) and cut["moved"] > least_effect(step, cut, MOVED):
        if "rounding" in cut:
            sure = cut["moved"] > proof_multiples(fact["device"]) * cut["rounding"]
            verdict = Verdict.PROVEN if sure else Verdict.SUSPECT
        yield Claim(
            verdict,
            f"no gradient reaches {cut['weight']}, although the answers depend on it: the path is cut",
            got=f"0 at {cut['silent']} weights; changing this one by a hundredth moves log-probabilities by"
            f" {cut['moved']:.2g} nats",
            expected="a gradient for each weight with an effect",
            specificity=2,
        )


def _of_ranks(fact: Mapping[str, Any]) -> str:
    """Return the diagnosis from what ranks average, as text; "" if it is another one."""
    ranks, times = fact.get("ranks", 1), fact["trainer"] / (fact["norm"] or 1.0)
    if ranks == 1:
        return ""
    own = [differ({**fact, **each}, RELATIVE, MEAN_MULTIPLES) for each in fact.get("own", [])]
    if alone := [str(rank) for rank, differs in enumerate(own) if not differs]:
        which = ", ".join(alone)
        return f" of all {ranks} ranks: on rank {which} it is that of the rank's own samples, not averaged"
    parallel = fact.get("cosine", math.nan) > 1 - RELATIVE
    if abs(times / ranks - 1) < RELATIVE and parallel:
        return f" of all {ranks} ranks: it is {ranks} times as long, as with a sum over ranks, not an average"
    if abs(times * ranks - 1) < RELATIVE and parallel:
        return f" of all {ranks} ranks: it is 1/{ranks} as long, as with a second average over ranks"
    return ""


def _of(**lengths: object) -> Step:
    known = {"rows": 8, "device": "cpu", "norm": 0.5, "trainer": 0.5, "cosine": 1.0, "pulled": 2.0}
    return changed_step(
        example_step(), facts={"row_gradients": known | {"free": 1.0, "difference": 2e-6} | lengths}
    )


def example() -> Step:
    """A sign is wrong."""
    return _of(cosine=-1.0, difference=1.0)


def another_order() -> Step:
    """Micro-batches add up in another order."""
    return _of(difference=5e-5)


def rounded() -> Step:
    """A forward in bfloat16: rounding changes a hundredth of the gradient."""
    return _of(device="cpu, torch.bfloat16", difference=5e-3, rounding=4e-3)


def hidden_by_rounding() -> Step:
    """In bfloat16 a weight without a gradient seems to have an effect, as large as that of rounding."""
    cut = {"weight": "w", "moved": 4e-4, "silent": 1, "rounding": 1e-4}
    return _of(device="cpu, torch.bfloat16", difference=5e-3, rounding=4e-3, missing_gradient=cut)


def certain() -> Step:
    """All tokens are nearly certain: the gradient is rounding, or 0."""
    return _of(norm=0.0, trainer=0.0, difference=0.0, free=1e-7)


def of_noise() -> Step:
    """The gradient is rounding."""
    return _of(norm=1e-9, trainer=2e-8, cosine=0.0, difference=2e-8)


RULE = Rule(
    code="OPT009",
    name="gradient-not-of-its-rows",
    kind="M",
    needs=("facts.row_gradients",),
    taints=("sft", "policy"),
    judge=judge,
    example=example,
    lookalikes=(another_order, rounded, hidden_by_rounding, certain, of_noise),
)
