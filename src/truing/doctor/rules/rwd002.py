"""RWD002: The same answers get other rewards when graded again.

What: Stored answers get other rewards from a second run of the grader. Rewards are on other rows, or every
rollout has a statistic of its group, or the grader is not deterministic.

Why it is silent: A reward is a number, and any number works. Rewards on the wrong rows train a policy
towards nothing. A noisy grader adds its noise to every advantage.

How it is measured: Every step grades some rollouts again, and compares the rewards one by one, also those of
turns. Rewards that moved together, all by the same number of rows or in reverse order, among all or within
each group, are on other rows. So are eight or more different ones that all appear elsewhere. Any other
difference makes only the grader suspect.

Healthy look-alikes: A grader that is not exact, or that remembers earlier answers. A few exchanged rewards of
0 and 1 may be chance. Rounding in the last digit.

Fix: Give each answer an id before grading, and store its reward under that id. Make the grader exact if
possible; otherwise compare a judge's noise with the spread of a group.

References: docs/judges.md, https://arxiv.org/abs/2606.26185
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.verdict import Claim, Verdict
from truing.types.batch_facts import Regraded

ROUNDING = 1e-5
"""Reward units, and of the reward: rounding of float32 and of a sum in another order."""

MANY = 8
"""Rewards on other rows, too many for chance."""


class Measured(NamedTuple):
    """Stored rewards, and those of the second grading."""

    graded: int
    other: int  # that differ
    values: int  # distinct values among those
    same: bool  # the same rewards, on other rows
    moved: str  # the permutation from the stored rewards to the others; empty without one
    of_group: str  # the statistic of its group's rewards that each rollout has; empty without one
    row: int | None  # the first that differs, if it is in the step
    stored: float
    again: float


def measure(step: Step, rollouts: Sequence[Regraded]) -> Measured:
    """Compare one by one, and as a whole."""
    pairs = [(each["stored"], each["again"]) for each in rollouts]
    wrong = [i for i, (a, b) in enumerate(pairs) if not _equal(a, b)]
    stored, again = ([pairs[i][side] for i in wrong] for side in (0, 1))
    nothing: Mapping[str, Any] = {"stored": math.nan, "again": math.nan}
    first = rollouts[wrong[0]] if wrong else nothing
    return Measured(
        len(pairs),
        len(wrong),
        len({round(value / ROUNDING) for value in stored if math.isfinite(value)}),
        all(_equal(a, b) for a, b in zip(sorted(stored), sorted(again), strict=True)),
        _order(pairs, _blocks(step, rollouts)),
        _of_group(pairs, _whole(step, rollouts)),
        step.row_of(first.get("sample_id")),
        first["stored"],
        first["again"],
    )


def _equal(a: float, b: float) -> bool:
    """Return whether two rewards are equal up to rounding; both may be missing."""
    return math.isclose(a, b, rel_tol=ROUNDING, abs_tol=ROUNDING) or (math.isnan(a) and math.isnan(b))


def _blocks(step: Step, rollouts: Sequence[Regraded]) -> dict[str, list[list[int]]]:
    """Return the sets of places within which rewards may have moved: all of them, or each group's."""
    group_of = {name: row.group_id for row in step.samples for name in (row.sample_id, row.rollout_id)}
    groups: dict[str, list[int]] = {}
    for i, each in enumerate(rollouts):
        groups.setdefault(group_of.get(each.get("sample_id", ""), ""), []).append(i)
    return {"": [list(range(len(rollouts)))], " within groups": list(groups.values())}


def _order(pairs: Sequence[tuple[float, float]], blocks: dict[str, list[list[int]]]) -> str:
    """Return the permutation that puts stored rewards on other rows; empty without one."""
    for suffix, within in blocks.items():
        longest = max(map(len, within), default=0)
        turned = {"in reverse order": [place for block in within for place in reversed(block)]}
        for by in (*range(1, longest // 2 + 1), *range(-1, -longest // 2, -1)):
            others = [block[(k + by) % len(block)] for block in within for k in range(len(block))]
            turned[f"shifted by {by}"] = others
        in_order = [place for block in within for place in block]
        for name, others in turned.items():
            if all(_equal(pairs[i][0], pairs[j][1]) for i, j in zip(in_order, others, strict=True)):
                return name + suffix
    return ""


def _whole(step: Step, graded: Sequence[Regraded]) -> list[list[int]]:
    """Return the places of each group that is graded completely."""
    rows = {name: row for row in step.samples for name in (row.sample_id, row.rollout_id)}
    rollouts: dict[str, set[str]] = {}
    for row in step.samples:
        rollouts.setdefault(row.group_id, set()).add(row.rollout_id)
    places: dict[str, dict[str, int]] = {}
    for i, each in enumerate(graded):
        if (row := rows.get(each.get("sample_id", ""))) is not None:
            places.setdefault(row.group_id, {})[row.rollout_id] = i
    return [list(members.values()) for group, members in places.items() if members.keys() == rollouts[group]]


def _of_group(pairs: Sequence[tuple[float, float]], whole: Sequence[Sequence[int]]) -> str:
    """Return the one statistic of their group's rewards that all rollouts have; empty without one."""
    whole = [group for group in whole if all(math.isfinite(pairs[i][1]) for i in group)]
    if not any(len({round(pairs[i][1] / ROUNDING) for i in group}) > 1 for group in whole):
        return ""
    for name, one in (("mean", fmean), ("largest", max), ("smallest", min), ("sum", math.fsum)):
        if all(_equal(pairs[i][0], one([pairs[j][1] for j in group])) for group in whole for i in group):
            return name
    return ""


def judge(step: Step) -> Iterator[Claim]:
    """Claim rewards on wrong rows, or an inexact grader."""
    measured = measure(step, step.facts["regraded"])
    if not measured.other:
        return
    how = moved_as(measured)
    yield Claim(
        Verdict.PROVEN if how else Verdict.SUSPECT,
        how or f"{measured.other} of {measured.graded} answers get another reward when graded again",
        got=f"{measured.stored:.5g} is stored, {measured.again:.5g} is the second reward"
        + (", with the same rewards overall" if measured.same else ""),
        expected="the same reward for the same answer",
        remedy="" if how else "grade one answer ten times: if it varies, the grader is not exact",
        row=measured.row,
        specificity=4 if how else 1,
    )


def moved_as(measured: Measured) -> str:
    """Return how all rewards changed as a whole; empty if they did not."""
    shuffled = measured.same and measured.values >= MANY
    if measured.other < MANY or not (measured.moved or measured.of_group or shuffled):
        return ""
    if measured.of_group:
        return (
            f"{measured.other} of {measured.graded} rollouts have the {measured.of_group} of their group's"
            " rewards"
        )
    order = f": {measured.moved}" if measured.moved else ""
    return f"{measured.other} of {measured.graded} rewards are on other rows than their answers{order}"


def _graded(step: Step, again: Sequence[float]) -> Step:
    regraded = [
        {"sample_id": row.sample_id, "stored": row.reward, "again": reward}
        for row, reward in zip(step.samples, again, strict=True)
    ]
    return changed_step(step, facts={"regraded": regraded})


REWARDS = (0.1, 0.9, 0.3, 0.2, 0.7, 0.5, 0.8, 0.4)


def example() -> Step:
    """Each row has the reward of the one before it."""
    return _graded(example_step(rewards=REWARDS), (*REWARDS[1:], REWARDS[0]))


def group_paid() -> Step:
    """Every rollout has the mean of its group."""
    step = example_step(rewards=REWARDS)
    groups: dict[str, list[float]] = {}
    for row, reward in zip(step.samples, REWARDS, strict=True):
        groups.setdefault(row.group_id, []).append(reward)
    paid = {i: {"reward": fmean(groups[row.group_id])} for i, row in enumerate(step.samples)}
    return _graded(changed_step(step, samples=paid), REWARDS)


def rounded() -> Step:
    """The second grading adds in another order."""
    return _graded(example_step(rewards=REWARDS), [reward + 1e-8 for reward in REWARDS])


RULE = Rule(
    code="RWD002",
    name="regraded-differently",
    kind="E",
    needs=("facts.regraded",),
    taints=("rewards", "policy"),
    applies=lambda step: step.setup.algo != "sft",
    judge=judge,
    example=example,
    lookalikes=(rounded,),
)
