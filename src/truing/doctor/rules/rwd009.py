"""RWD009: A reward is not the sum of its parts.

What: The reward in use differs from the weighted sum of the reward functions' results.

Why it is silent: The log has the parts as graded, and the step uses the changed reward. Clipped or
squared rewards still order rollouts correctly, scaled and shifted ones vanish from group-relative
advantages, and only the weight of each rollout differs.

How it is measured: The rule adds up each sample's parts, times their declared weights, and compares the sum
with its reward. It names a single change that explains all rewards: clipped, scaled, shifted, squared or
centred sums.

Healthy look-alikes: Penalties of declared gates (cut or long rollouts) and the KL in the reward are
subtracted later: the recorded reward is the graded one. A failed rollout has neither parts nor a reward.
A reward function that does not apply to a rollout has no part in it. Rounding in the last digit.

Fix: Change a reward in a reward function, or by a declared weight, gate or advantage scale, which the
record has.

References: docs/tasks.md, https://arxiv.org/abs/2402.03300
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict
from truing.types.sample import SampleFacts
from truing.utils.format import with_count

ROUNDING = 1e-5
"""Reward units, and of the sum: rounding of float32 and of another order."""


class Graded(NamedTuple):
    """A reward, and the sum of its parts; NaN if they are not the declared ones."""

    row: int
    group: str
    reward: float
    parts: float


def _graded_rows(step: Step) -> list[Graded]:
    """Add up the parts of each rollout once."""
    weights = step.setup.reward_weights
    assert weights is not None
    # with a part of one on record, those of each are: a rollout that no function judges has no reward
    recorded = step.setup.trainer == "truing" and any(row.reward_parts for row in step.samples)
    found: dict[str, Graded] = {}
    for index, row in enumerate(step.samples):
        if (recorded or row.reward_parts) and not math.isnan(row.reward):
            found[row.rollout_id] = Graded(index, row.group_id, row.reward, _sum(row, weights))
    return list(found.values())


def _sum(row: SampleFacts, weights: Mapping[str, float]) -> float:
    """Return the weighted sum of the parts of a reward."""
    # a function need not apply to every rollout, but one must
    if not row.reward_parts or not row.reward_parts.keys() <= weights.keys():
        return math.nan
    return math.fsum(weights[name] * part for name, part in row.reward_parts.items())


def _equal(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=ROUNDING, abs_tol=ROUNDING)


def judge(step: Step) -> Iterator[Claim]:
    """Claim any difference from the sum."""
    rows = _graded_rows(step)
    wrong = [each for each in rows if not _equal(each.reward, each.parts)]
    if wrong:
        worst = max(
            wrong, key=lambda each: math.inf if math.isnan(each.parts) else abs(each.reward - each.parts)
        )
        yield Claim(
            Verdict.PROVEN,
            f"{len(wrong)} of {with_count(len(rows), 'reward')} are not the weighted sum of their parts"
            f"{_pattern(rows, wrong)}",
            got=f"{worst.reward:.5g}",
            expected="the declared parts" if math.isnan(worst.parts) else f"{worst.parts:.5g}",
            row=worst.row,
            specificity=3.5,
        )


def _pattern(rows: Sequence[Graded], wrong: Sequence[Graded]) -> str:
    """Return the one change of the sums that explains every reward, as text."""
    got = [each.reward for each in wrong]
    if all(_equal(each, got[0]) for each in got) and len({each.parts for each in wrong}) > 1:
        if all(each.parts > got[0] for each in wrong):
            return f": as if clipped at {got[0]:.4g}"
        return f": each of these is {got[0]:.4g}"
    tried = [("squared", [each.parts**2 for each in rows])]
    by = [each.reward / each.parts for each in rows if each.parts]
    if by:
        tried.insert(0, (f"multiplied by {by[0]:.4g}", [by[0] * each.parts for each in rows]))
    shift = rows[0].reward - rows[0].parts
    tried.append((f"shifted by {shift:.4g}", [each.parts + shift for each in rows]))
    mean = {
        name: math.fsum(each.parts for each in rows if each.group == name)
        / sum(each.group == name for each in rows)
        for name in {each.group for each in rows}
    }
    tried.append(("less the mean of their group", [each.parts - mean[each.group] for each in rows]))
    for name, values in tried:
        if all(_equal(each.reward, value) for each, value in zip(rows, values, strict=True)):
            return f": as if {name}"
    return ""


REWARDS = (1.0, 0.0, 0.75, 0.25, 1.0, 1.0, 0.0, 0.25)


def _graded(rewards: Sequence[float], weight: float = 1.0) -> Step:
    """Return rollouts with these parts, and other recorded rewards."""
    step = example_step(rewards=rewards, setup={"reward_weights": {"exact": weight}})
    return changed_step(
        step, samples={i: {"reward_parts": {"exact": part}} for i, part in enumerate(REWARDS)}
    )


def example() -> Step:
    """Rewards are clipped before the advantages."""
    return _graded([min(reward, 0.5) for reward in REWARDS])


def weighted() -> Step:
    """A part that counts half."""
    return _graded([reward / 2 for reward in REWARDS], weight=0.5)


def unknown() -> Step:
    """Another trainer's rollouts, with unknown parts."""
    step = _graded(REWARDS)
    return changed_step(step, samples={i: {"reward_parts": {}} for i in range(len(step.samples))})


RULE = Rule(
    code="RWD009",
    name="reward-not-of-its-parts",
    kind="E",
    needs=("setup.reward_weights", "sample.reward_parts", "sample.reward"),
    taints=("rewards", "policy"),
    applies=is_sampled,
    judge=judge,
    example=example,
    lookalikes=(weighted, unknown),
)
