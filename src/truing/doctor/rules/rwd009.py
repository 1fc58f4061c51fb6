"""RWD009: A reward is not the sum of its parts.

What: The reward that credit is given for differs from the weighted sum of what the reward functions
returned.

Why it is silent: The parts are logged as they were graded, the reward is trained on as it was changed.
Clipped or squared rewards still order attempts as they should, scaled and shifted ones vanish from
group-relative advantages, and only how much each attempt counts is another.

How it is measured: Each row's parts, times their declared weights, are added up and compared with its
reward. Whether all rewards are clipped, scaled, shifted, squared or centred versions of the sums is said.

Healthy look-alikes: What declared gates take off (cut or long attempts) and the KL in the reward are taken
off later: the reward on record is as it was graded. An attempt that failed has neither parts nor a reward.
Rounding in the last digit.

Fix: Change a reward in a reward function, or by a declared weight, gate or advantage scale, where it is on
record.

References: docs/tasks.md, https://arxiv.org/abs/2402.03300
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from truing.doctor.evidence import Row, Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count

ROUNDING = 1e-5
"""Reward units, and of the sum: what float32 and another order leave."""


class Graded(NamedTuple):
    """A reward, and what its parts come to; NaN where they are not those that are declared."""

    row: int
    group: str
    reward: float
    parts: float


class Measured(NamedTuple):
    """All rewards that have parts."""

    rows: tuple[Graded, ...]


def measure(step: Step) -> Measured:
    """Add up the parts of each attempt once."""
    weights = step.setup.reward_weights
    assert weights is not None
    found: dict[str, Graded] = {}
    for index, row in enumerate(step.rows):
        if row.reward_parts and not math.isnan(row.reward):
            found[row.rollout_id] = Graded(index, row.group_id, row.reward, _sum(row, weights))
    return Measured(tuple(found.values()))


def _sum(row: Row, weights: Mapping[str, float]) -> float:
    """What the parts of a reward come to."""
    if row.reward_parts.keys() != weights.keys():
        return math.nan
    return math.fsum(weights[name] * part for name, part in row.reward_parts.items())


def _equal(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=ROUNDING, abs_tol=ROUNDING)


def judge(found: Measured) -> Iterator[Claim]:
    """A sum is what it is."""
    wrong = [each for each in found.rows if not _equal(each.reward, each.parts)]
    if wrong:
        worst = max(
            wrong, key=lambda each: math.inf if math.isnan(each.parts) else abs(each.reward - each.parts)
        )
        yield Claim(
            Verdict.PROVEN,
            f"{len(wrong)} of {with_count(len(found.rows), 'reward')} are not the weighted sum of their parts"
            f"{_pattern(found.rows, wrong)}",
            got=f"{worst.reward:.5g}",
            expected="the declared parts" if math.isnan(worst.parts) else f"{worst.parts:.5g}",
            row=worst.row,
            specificity=3.5,
        )


def _pattern(rows: Sequence[Graded], wrong: Sequence[Graded]) -> str:
    """What was done to the sums, where one change explains every reward."""
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
    """Attempts that were graded so, with other rewards on record."""
    step = example_step(rewards=rewards, setup={"reward_weights": {"exact": weight}})
    return changed_step(step, rows={i: {"reward_parts": {"exact": part}} for i, part in enumerate(REWARDS)})


def example() -> Step:
    """Rewards are clipped before credit is given."""
    return _graded([min(reward, 0.5) for reward in REWARDS])


def weighted() -> Step:
    """A part that counts half."""
    return _graded([reward / 2 for reward in REWARDS], weight=0.5)


def unknown() -> Step:
    """Another trainer's attempts, of which nobody knows the parts."""
    step = _graded(REWARDS)
    return changed_step(step, rows={i: {"reward_parts": {}} for i in range(len(step.rows))})


RULE = Rule(
    code="RWD009",
    name="reward-not-of-its-parts",
    kind="E",
    needs=("setup.reward_weights", "row.reward_parts", "row.reward"),
    taints=("rewards", "policy"),
    applies=is_sampled,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(weighted, unknown),
)
