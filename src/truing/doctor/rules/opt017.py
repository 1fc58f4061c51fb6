"""OPT017: A weight of the loss that changes by step does not follow what the recipe declares.

What: With `kl.target` or `entropy.target`, the weight of the KL or of the entropy bonus after a step is not
the one that the step's measured number gives: it moves the wrong way, too far, or not at all. Or the weight
of demonstrations beside rollouts does not fall as declared.

Why it is silent: The weight is meant to move, and a curve of it looks alive in any direction. A controller
with the wrong sign pushes its number away from the target, slowly; what is seen is a KL that grows, or an
entropy that collapses in spite of its bonus.

How it is measured: The weight of this step against that of the step before, by the declared formula. The
entropy's weight changes by `entropy.step`, up below the target and down above it, and is at least 0. The KL's
weight changes in proportion to KL ÷ target − 1, within a fifth, times rollouts ÷ `kl.horizon`: those of the
step, or, where some have no reward, as many as have one or more. The weight of demonstrations is
`bootstrap.coef` times 1 − step ÷ `bootstrap.steps`.

Healthy look-alikes: A measured number exactly at its target: nothing changes. A weight of 0 that would be
below 0. A weight that goes to the recipe's own where a guard's rollback has changed that: it is another one
than the stage began with. The first step of a fork with another target.

Fix: A KL above its target raises its weight, an entropy above its target lowers the bonus.

References: https://arxiv.org/abs/1909.08593 §2.2, https://arxiv.org/abs/2505.22312 §3.2
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule
from truing.doctor.rules.smp002 import drawn_by
from truing.doctor.verdict import Claim, Verdict
from truing.types.facts import Facts

ROUNDING = 1e-6
"""Of a weight: it is a Python number."""

CONTROLLERS = ("kl_coef", "kl_target", "kl_horizon", "entropy_coef", "entropy_target", "entropy_step")
"""Settings that a controller reads, of ``Setup``."""

AT_MOST = 0.2
"""The largest share of the error that counts."""


class Weight(NamedTuple):
    """The weight of a term in this step, and the bounds that the step before gives."""

    term: str
    name: str  # of its metric
    before: float
    now: float
    low: float
    high: float
    measured: float
    target: float


def _moved_weights(step: Step) -> list[Weight]:
    """Return the controlled weights, after a step that is on record.

    They follow from that step's recipe; a fork or a rollback may have another one since.
    """
    if step.previous is None:
        return []
    before, now = step.previous.metrics, step.setup
    then = step.previous.facts.get("controllers", {})
    under = replace(step, setup=replace(now, **{**dict.fromkeys(CONTROLLERS), **then})) if then else step
    found = [
        (_kl(under, before), then.get("kl_coef"), now.kl_coef),
        (_entropy(under, before), then.get("entropy_coef"), now.entropy_coef),
    ]
    return [each for each, was, start in found if each and not _starts_anew(step, each, was, start)]


def _starts_anew(step: Step, weight: Weight, was: float | None, start: float | None) -> bool:
    """Return whether the weight went to the recipe's, which is another one than ``was`` before."""
    if was is None:  # unknown, in earlier records: the first of the stage
        was = step.past_of_stage[0].metrics.get(weight.name)
    return weight.now == start != weight.before and start != was


def _kl(step: Step, before: Mapping[str, float]) -> Weight | None:
    setup, name, measured = step.setup, "weight/kl", before.get("kl_all/k3", math.nan)
    if setup.kl_target is None or setup.kl_horizon is None or math.isnan(measured):
        return None
    tasks = step.previous.facts.get("tasks", {}) if step.previous else {}
    if name not in before or name not in step.metrics or "sampled" not in tasks:
        return None
    error = min(max(measured / setup.kl_target - 1, -AT_MOST), AT_MOST)
    fewest, most = (
        before[name] * (1 + error * n / setup.kl_horizon) for n in (tasks["graded"], tasks["sampled"])
    )
    low, high = sorted((max(fewest, 0.0), max(most, 0.0)))
    return Weight("KL", name, before[name], step.metrics[name], low, high, measured, setup.kl_target)


def _entropy(step: Step, before: Mapping[str, float]) -> Weight | None:
    setup, name = step.setup, "weight/entropy"
    measured = before.get("entropy/mean", before.get("entropy/sampled", math.nan))
    if setup.entropy_target is None or setup.entropy_step is None or math.isnan(measured):
        return None
    if name not in before or name not in step.metrics:
        return None
    direction = (measured < setup.entropy_target) - (measured > setup.entropy_target)
    due = max(before[name] + direction * setup.entropy_step, 0.0)
    now, target = step.metrics[name], setup.entropy_target
    return Weight("entropy bonus", name, before[name], now, due, due, measured, target)


def judge(step: Step) -> Iterator[Claim]:
    """Claim each weight outside its bounds."""
    yield from _other_bootstrap(step)
    for each in _moved_weights(step):
        room = ROUNDING * max(abs(each.high), each.before, 1e-6)
        if not each.low - room <= each.now <= each.high + room:
            due = f"{each.low:.6g}" if each.low == each.high else f"{each.low:.6g} to {each.high:.6g}"
            yield Claim(
                Verdict.PROVEN,
                f"the weight of the {each.term} does not follow its target",
                got=f"{each.now:.6g}, after {each.before:.6g}",
                expected=f"{due}, since {each.measured:.4g} was measured and the target is {each.target:.4g}",
                specificity=2,
            )


def _other_bootstrap(step: Step) -> Iterator[Claim]:
    """Claim a weight of demonstrations that does not fall in a straight line to 0."""
    coef, steps, got = step.setup.bootstrap_coef, step.setup.bootstrap_steps, "weight/supervised"
    if not steps or coef is None or got not in step.metrics:
        return
    due = coef * max(1 - step.step / steps, 0.0)
    if abs(step.metrics[got] - due) > ROUNDING * coef:
        yield Claim(
            Verdict.PROVEN,
            "the weight of the demonstrations beside rollouts is not the declared one",
            got=f"{step.metrics[got]:.6g}",
            expected=f"{due:.6g}: {coef:g} in the first step, 0 after {steps}",
            specificity=2,
        )


def _controlled(entropy: float, weight: float, before: float = 0.01) -> Step:
    """Return the third step of a stage, whose first has the weight 0.01."""
    weights = 0.01, before
    past = [
        past_step(n, metrics={"entropy/mean": entropy, "weight/entropy": x}) for n, x in enumerate(weights)
    ]
    setup = {"entropy_target": 0.5, "entropy_step": 0.005}
    step = changed_step(example_step(setup=setup), past=past, metrics={"weight/entropy": weight})
    return drawn_by(replace(step, step=2), "b", 2)


def example() -> Step:
    """The entropy is below its target, and the bonus falls."""
    return _controlled(0.2, 0.005)


def late() -> Step:
    """The weight of the demonstrations is that of the step before."""
    step = example_step(setup={"bootstrap_coef": 0.5, "bootstrap_steps": 10})
    return replace(changed_step(step, metrics={"weight/supervised": 0.5}), step=1)


def begun_again() -> Step:
    """A resumed run begins with the recipe's weight, which no guard has changed."""
    return changed_step(_controlled(0.2, 0.01, before=0.03), setup={"entropy_coef": 0.01})


def followed() -> Step:
    """The entropy is below its target, and the bonus rises."""
    return _controlled(0.2, 0.015)


def rolled_back() -> Step:
    """The guard went back, and set the weight that its recipe has now."""
    return changed_step(_controlled(0.2, 0.1), setup={"entropy_coef": 0.1})


def under_another_target() -> Step:
    """A fork has another target: the move before it followed the target of its parent."""
    step = _controlled(0.2, 0.015)
    parent: Facts = {"controllers": {"entropy_coef": 0.01, "entropy_target": 0.5, "entropy_step": 0.005}}
    past = [replace(each, facts=parent) for each in step.past_of_stage]
    return changed_step(step, past=past, setup={"entropy_target": 0.1})


def at_zero() -> Step:
    """The entropy is above its target; the bonus is 0 and stays there."""
    return _controlled(0.9, 0.0, before=0.001)


RULE = Rule(
    code="OPT017",
    name="weight-not-as-declared",
    kind="E",
    needs=("metrics.weight/kl | metrics.weight/entropy | metrics.weight/supervised",),
    taints=("policy",),
    applies=lambda step: (
        step.setup.kl_target is not None
        or step.setup.entropy_target is not None
        or step.step < (step.setup.bootstrap_steps or 0)
    ),
    judge=judge,
    example=example,
    lookalikes=(followed, at_zero, rolled_back, under_another_target),
)
