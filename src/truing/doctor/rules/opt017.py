"""OPT017: A weight that changes by step, or a gate, does not do what the recipe declares.

What: With `kl.target` or `entropy.target`, the weight of the KL or of the entropy bonus after a step is not
the one that the step's measured number gives: it moves the wrong way, too far, or not at all. Or an optimizer
step is skipped although its KL is within `kl.cap`, or is not skipped beyond it. The weight of demonstrations
beside rollouts does not fall as declared. Or `gates.equal_groups` leaves out a group whose rewards differ, or
keeps one that it drops.

Why it is silent: The weight is meant to move, and a curve of it looks alive in any direction. A controller
with the wrong sign pushes its number away from the target, slowly; what is seen is a KL that grows, or an
entropy that collapses in spite of its bonus.

How it is measured: The weight of this step against that of the step before, by the declared formula. The
entropy's weight changes by `entropy.step`, up below the target and down above it, and is at least 0. The KL's
weight changes in proportion to KL ÷ target − 1, within a fifth, times rollouts ÷ `kl.horizon`: those of the
step, or, where some have no reward, as many as have one or more. The KL of each optimizer step, the mean of
k3 over its computed samples, is compared with the cap. The weight of demonstrations is `bootstrap.coef` times
1 − step ÷ `bootstrap.steps`. The rewards of each group are compared with whether it is trained.

Healthy look-alikes: A measured number exactly at its target: nothing changes. A weight of 0 that would be
below 0. A weight that goes to the recipe's own where a guard's rollback has changed that: it is another one
than the stage began with.

Fix: A KL above its target raises its weight, an entropy above its target lowers the bonus. The cap is for
the mean over tokens.

References: https://arxiv.org/abs/1909.08593 §2.2, https://arxiv.org/abs/2505.22312 §3.2
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.oracle.kl import kl_estimates
from truing.doctor.rule import Rule
from truing.doctor.rules.smp002 import drawn_by
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Excluded, Origin
from truing.utils.format import with_count

ROUNDING = 1e-6
"""Of a weight: it is a Python number."""

AT_MOST = 0.2
"""The largest share of the error that counts."""

SHOWN = 4
"""Rewards that a message has."""

NEAR = 1e-3
"""Of the cap: a KL so near to it may be on either side by rounding."""


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
    """Return the controlled weights, after a step that is on record."""
    if step.previous is None:
        return []
    before, setup = step.previous.metrics, step.setup
    found = (_kl(step, before), setup.kl_coef), (_entropy(step, before), setup.entropy_coef)
    return [weight for weight, start in found if weight is not None and not _starts_anew(step, weight, start)]


def _starts_anew(step: Step, weight: Weight, start: float | None) -> bool:
    """Return whether the weight went to the recipe's, which a guard's rollback has changed in the stage."""
    began = step.past_of_stage[0].metrics.get(weight.name)
    return weight.now == start != weight.before and start != began


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
    """Claim each weight outside its bounds, and each optimizer step that the cap treats otherwise."""
    yield from _other_skips(step)
    yield from _other_groups(step)
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


def _other_skips(step: Step) -> Iterator[Claim]:
    """Claim optimizer steps that are skipped within the cap, or not skipped beyond it.

    Only the last one of a step may be skipped: the step ends with it.
    """
    cap, action = step.setup.kl_cap, step.setup.kl_cap_action
    if cap is None or not {"new_logprob", "ref_logprob", "kl_mask"} <= {*step.tokens}:
        return
    steps = list(step.at_each_optimizer_step())
    for place, (number, this) in enumerate(steps):
        x_N = (this.tokens["new_logprob"] - this.tokens["ref_logprob"]).double()[this.tokens["kl_mask"]]
        kl_n = kl_estimates(x_N[~x_N.isnan()])["k3"]
        if not len(kl_n) or abs((kl := float(kl_n.mean())) - cap) < NEAR * cap:
            continue
        due = kl > cap and (number > 0 or action != "stop_epochs")
        skipped = place == len(steps) - 1 and step.metrics.get("gate/held_back", 0.0) > 0
        if due != skipped:
            yield Claim(
                Verdict.PROVEN,
                f"optimizer step {number + 1} of {len(steps)} is {'' if skipped else 'not '}skipped",
                got=f"a KL of {kl:.4g} nats per token to the reference",
                expected=f"{'more' if skipped else 'less'} than kl.cap = {cap:g}",
                specificity=4.2,
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


def _other_groups(step: Step) -> Iterator[Claim]:
    """Claim groups that are left out although their rewards differ, and equal ones that `drop` keeps."""
    action = step.setup.equal_groups
    if action is None or "excluded" not in step.tokens:
        return
    rewards, dropped, trained = defaultdict[str, list[float]](list), set[str](), set[str]()
    for _, sample, part in step.slices():
        excluded = step.tokens["excluded"][part][step.tokens["origin"][part] == Origin.SAMPLED]
        if len(excluded) and not math.isnan(sample.reward):
            rewards[sample.group_id].append(sample.reward)
            # tokens that a mask leaves out in any case keep their own reason
            dropped |= {sample.group_id} if (excluded == Excluded.NOT_KEPT).any() else set()
            trained |= {sample.group_id} if (excluded == Excluded.NO).any() else set()
    differs = {name: max(each) > min(each) for name, each in rewards.items() if len(each) > 1}
    wrong = [name for name in differs if differs[name] and name in dropped]
    if action == "drop" and any(differs.values()):
        wrong += [name for name in differs if not differs[name] and name in trained]
    if wrong:
        what = "left out" if differs[wrong[0]] else "trained"
        of_first = ", ".join(f"{each:g}" for each in rewards[wrong[0]][:SHOWN])
        yield Claim(
            Verdict.PROVEN,
            f"{len(wrong)} of {with_count(len(differs), 'group')} are {what}, against gates.equal_groups",
            got=f"rewards of {of_first} in {wrong[0]}",
            expected=f"{action}: groups of equal rewards are left out, and no others",
            specificity=2.2,
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


def skipped_below() -> Step:
    """The cap skips a step whose KL is below it."""
    step = example_step(setup={"kl_cap": 0.5, "kl_cap_action": "skip"})
    return changed_step(step, metrics={"gate/held_back": 1.0}, ref_logprob=step.tokens["new_logprob"] - 0.01)


def left_out() -> Step:
    """A group is left out, although its rewards differ."""
    step = example_step(setup={"equal_groups": "drop"})
    first = torch.zeros_like(step.tokens["policy_mask"])
    for index, sample in enumerate(step.samples):
        first[step.part(index)] = sample.group_id == step.samples[0].group_id
    sampled = step.tokens["origin"] == Origin.SAMPLED
    excluded = step.tokens["excluded"].masked_fill(first & sampled, Excluded.NOT_KEPT)
    return changed_step(step, excluded=excluded)


def late() -> Step:
    """The weight of the demonstrations is that of the step before."""
    step = example_step(setup={"bootstrap_coef": 0.5, "bootstrap_steps": 10})
    return replace(changed_step(step, metrics={"weight/supervised": 0.5}), step=1)


def not_skipped() -> Step:
    """The KL is below the cap, and nothing is skipped."""
    return changed_step(skipped_below(), metrics={"gate/held_back": 0.0})


def begun_again() -> Step:
    """A resumed run begins with the recipe's weight, which no guard has changed."""
    return changed_step(_controlled(0.2, 0.01, before=0.03), setup={"entropy_coef": 0.01})


def followed() -> Step:
    """The entropy is below its target, and the bonus rises."""
    return _controlled(0.2, 0.015)


def rolled_back() -> Step:
    """The guard went back, and set the weight that its recipe has now."""
    return changed_step(_controlled(0.2, 0.1), setup={"entropy_coef": 0.1})


def at_zero() -> Step:
    """The entropy is above its target; the bonus is 0 and stays there."""
    return _controlled(0.9, 0.0, before=0.001)


RULE = Rule(
    code="OPT017",
    name="control-not-as-declared",
    kind="E",
    needs=("metrics.weight/kl | metrics.weight/entropy | new_logprob",),
    taints=("policy",),
    applies=lambda step: any(
        each is not None
        for each in (
            *(step.setup.kl_target, step.setup.entropy_target, step.setup.kl_cap),
            *(step.setup.equal_groups, step.setup.bootstrap_steps),
        )
    ),
    judge=judge,
    example=example,
    lookalikes=(followed, at_zero, rolled_back, not_skipped),
)
