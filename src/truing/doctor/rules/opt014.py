"""OPT014: The optimizer's gradient differs from the sum of the backward passes.

What: Between the backward passes of a step and the optimizer step, the gradient of some weight was lost,
cleared, negated, scaled or added to. Or a backward pass gave no gradient to a weight that its samples depend
on.

Why it is silent: It may happen once, to one layer: a gradient cleared at low memory, a hook that fires at
the wrong time, a scaler that unscales a part twice. Each token gradient is right, the weights move, and the
norm is a number like any other.

How it is measured: In every step, the check adds up 16 entries of each weight's gradient as autograd
returns them, and compares the sums with the same entries at the optimizer step. Clipping multiplies all
weights by one factor: the median over weights, which must be that of the declared clip. If some pass gives
a weight no gradient, while others do, the check changes it by a hundredth: if log-probabilities change, and
half as much with half the change, the path is cut. With several ranks the sums are over the passes of all,
read before gradients are exchanged; a factor of one over the number of ranks is an average.

Healthy look-alikes: Rounding of sums. A of an adapter whose B is still 0: its gradient is 0. Experts
without tokens: changing them changes nothing. A clip of the whole gradient.

Fix: The names of the weights show the cause. One layer is a hook, a freeze or a checkpoint of its own. One
factor for all is a denominator, a scaler, or an average over ranks. Weights with a gradient from no backward
pass were not cleared before.

References: https://pytorch.org/docs/stable/notes/autograd.html, docs/control.md
"""

import math
from collections.abc import Iterator

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rounding_tolerance import least_effect
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count

CLIP = 1e-3
"""Of the clip's factor: the rounding of a norm in another order."""

MOVED = 1e-4
"""Nats per unit of token gradient, far beyond unmeasured rounding."""


def _clip(step: Step, norm: str) -> float:
    most, length = step.setup.max_grad_norm, step.metrics.get(norm, math.nan)
    return min(1.0, most / length) if most is not None and length > 0 else math.nan


def judge(step: Step) -> Iterator[Claim]:
    """Claim any difference, and a factor other than the clip's."""
    fact = step.facts["backward_sums"]
    ranks, cut = fact.get("ranks", 1), fact.get("missing_gradient")
    if fact["count"]:
        of_ranks = " of all ranks" if ranks > 1 else ""
        yield _claim(
            f"{fact['count']} of {with_count(fact['weights'], 'weight')} have another gradient than the sum"
            f" of the backward passes{of_ranks}, such as {fact['wrong'][0]}",
            f"a difference of {fact['relative']:.3g} of its length",
            "the sum of the backward passes, times the clip's factor",
        )
    if fact["foreign"]:
        yield _claim(
            f"{fact['foreign'][0]} has a gradient from no backward pass of the step",
            with_count(len(fact["foreign"]), "such weight") + " at least",
            "gradients of this step alone: were earlier ones cleared?",
        )
    if fact["calls"] > fact["steps"]:
        yield _claim(
            "the optimizer ran more often than the step declares",
            with_count(fact["calls"], "step"),
            f"{fact['steps']}, one for each minibatch",
        )
    yield from _factors(step, ranks)
    if cut and cut["moved"] > least_effect(step, cut, MOVED):
        yield _claim(
            f"a backward pass gave {cut['weight']} no gradient, although its samples depend on it: the path"
            " is cut",
            f"no gradient at {with_count(cut['silent'], 'weight')}; changing this one by a hundredth moves"
            f" log-probabilities by {cut['moved']:.2g} nats",
            "a gradient in each backward pass",
        )


def _factors(step: Step, ranks: int) -> Iterator[Claim]:
    """Claim a median factor of the gradients of policy or critic that is not the declared clip's."""
    fact = step.facts["backward_sums"]
    for part, factor, norm in (
        ("all gradients", fact["factor"], "grad/norm"),
        ("all gradients of the critic", fact.get("critic_factor"), "grad/critic_norm"),
    ):
        clip = _clip(step, norm)
        if factor is not None and abs(factor - clip) > CLIP * clip:
            averaged = ranks > 1 and abs(factor * ranks - clip) < CLIP * clip
            what = (
                f"{part} were averaged over {ranks} ranks, not summed"
                if averaged
                else f"{part} have another factor than the clip by the recorded norm"
            )
            yield _claim(what, f"{factor:.5g} times the sum of the backward passes", f"{clip:.5g} times")


def _claim(what: str, got: str, expected: str) -> Claim:
    return Claim(Verdict.PROVEN, what, got=got, expected=expected, specificity=0.9)


def _handed(**known: object) -> Step:
    fact = {"weights": 20, "wrong": [], "count": 0, "relative": 0.0, "foreign": []}
    fact |= {"steps": 1, "calls": 1, "factor": 1.0}
    return changed_step(example_step(setup={"max_grad_norm": 1.0}), facts={"backward_sums": fact | known})


def example() -> Step:
    """A layer's gradient is cleared."""
    return _handed(wrong=["layers.1.mlp.weight"], count=9, relative=1.0)


def clipped() -> Step:
    """All gradients have the clip's factor."""
    return changed_step(_handed(factor=0.25), metrics={"grad/norm": 4.0})


def experts() -> Step:
    """An expert has no tokens, and changing it changes nothing."""
    return _handed(silent=["layers.1.experts.3.weight"], silent_count=1, unheard={})


RULE = Rule(
    code="OPT014",
    name="gradient-lost-on-its-way",
    kind="E",
    needs=("facts.backward_sums",),
    taints=("sft", "policy", "critic"),
    judge=judge,
    example=example,
    lookalikes=(clipped, experts),
)
