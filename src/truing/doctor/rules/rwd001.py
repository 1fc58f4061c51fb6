"""RWD001: Attempts that were cut earn all there is.

What: Attempts whose last turn was cut at its limit have the largest reward of the update more often than the
attempts of the same group that ended by themselves, and not by chance.

Why it is silent: The reward goes up. What is reinforced with it is everything the attempt did, running into
the limit among it: a policy that never stops is told that it is right.

How it is measured: Attempts are counted whose last turn ended at its limit of tokens, and those of them with
the largest reward of the update. If the reward did not depend on how an attempt ended, those with the largest
one would be drawn at random from each group: the chance of so many is Fisher's, over all groups together.
Where it is not small, but a tenth of all that is rewarded most was cut, that is stated as a FACT: the reward
does not see how an attempt ended.

Healthy look-alikes: An agent that did its work and was cut in the words after it: now and then. Cut attempts
that are declared to be left out, or to cost something. An update in which all rewards are equal tells
nothing.

Fix: Let the grader see how the attempt ended, or set `gates.truncated`. Where an answer is right before the
limit and talks on, give the stop a chance: see MSK004 and MSK008.

References: https://arxiv.org/abs/2503.14476, docs/control.md
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from truing.doctor.evidence import Row, Step
from truing.doctor.example_steps import changed_step, example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict
from truing.types.sample import TurnSpan
from truing.types.status import FinishReason

HANDFUL = 5
"""Attempts that may have been right in time."""

TENTH = 0.1
"""Of all that is rewarded most."""


CHANCE = 1e-5
"""Of so many by chance: an update in a hundred thousand."""


class Measured(NamedTuple):
    """Attempts that were cut at the limit of a turn, and what they earned."""

    cut: int
    full: int  # the part of them with the largest reward
    all_full: int  # attempts with that reward, cut or not
    reward: float
    chance: float  # of as many that are both, were rewards drawn at random within groups
    row: int  # of the first that is both


def measure(step: Step) -> Measured:
    """Count attempts, each once however many samples it has."""
    attempts: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(step.rows):
        if row.kept and math.isfinite(row.reward):
            attempts[row.rollout_id].append(index)
    rewards = {name: step.rows[rows[0]].reward for name, rows in attempts.items()}
    best = max(rewards.values(), default=math.nan)
    cut = {name: i for name, rows in attempts.items() for i in rows if _cut(step.rows[i])}
    spread = len(set(rewards.values())) > 1
    full = [i for name, i in cut.items() if spread and rewards[name] == best]
    groups: dict[str, list[str]] = defaultdict(list)
    for name, rows in attempts.items():
        groups[step.rows[rows[0]].group_id].append(name)
    if all(len(names) == 1 for names in groups.values()):
        groups = {"": list(attempts)}  # attempts that are compared with no others
    counts = [
        Counter((name in cut, spread and rewards[name] == best) for name in names)
        for names in groups.values()
    ]
    best_of_all = sum(reward == best for reward in rewards.values())
    chance = chance_of([(each[1, 1], each[1, 0], each[0, 1], each[0, 0]) for each in counts])
    return Measured(len(cut), len(full), best_of_all, best, chance, full[0] if full else 0)


def chance_of(tables: Sequence[tuple[int, int, int, int]]) -> float:
    """Fisher's one-sided chance of as many in the first cells together, each table's margins being given.

    Args:
        tables: of each group how many are cut and best, cut and not, not cut and best, neither.
    """
    distribution, seen = np.ones(1), 0
    for both, cut, best, neither in tables:
        total = both + cut + best + neither
        counts = np.arange(min(both + cut, both + best) + 1)
        distribution = np.convolve(distribution, stats.hypergeom.pmf(counts, total, both + best, both + cut))
        seen += both
    return float(distribution[seen:].sum())


def _cut(row: Row) -> bool:
    """Whether an attempt ends in this row, at the limit of its last turn."""
    return row.truncated and bool(row.turns) and row.turns[-1].finish_reason == FinishReason.LENGTH


def judge(found: Measured) -> Iterator[Claim]:
    """A few may have been right in time; and where the reward is blind to it, as many as by chance."""
    if found.full > HANDFUL and found.full >= TENTH * found.all_full:
        suspected = found.chance < CHANCE
        yield Claim(
            Verdict.SUSPECT if suspected else Verdict.FACT,
            f"{found.full} of {found.cut} attempts that were cut at the limit have the largest reward of the"
            f" update, {found.reward:.4g}" + (f", by chance {found.chance:.1g}" if suspected else ""),
            got=f"they are {found.full} of {found.all_full} attempts with that reward",
            expected="an attempt that never came to its end not to be the best there is",
            row=found.row,
        )


def cut_ones(rewards: tuple[float, ...], cut: Sequence[int]) -> Step:
    """Groups of four, of which some attempts ran into the limit."""
    step = example_step(answers=[8 if i in cut else 4 for i in range(len(rewards))], rewards=rewards)
    ids = step.tokens["token_ids"].clone()
    rows = {}
    for index in cut:
        end = step.lengths[index]
        ids[step.starts[index] + end - 1] = 30
        turn = TurnSpan(4, end, FinishReason.LENGTH, 0, "a")
        rows[index] = {"truncated": True, "status": "truncated", "turns": (turn,)}
    return changed_step(step, token_ids=ids, rows=rows)


def example() -> Step:
    """In each group two answers ran into the limit, and only they are right."""
    return cut_ones((1.0, 1.0, 0.0, 0.0) * 8, [i for i in range(32) if i % 4 < 2])


def cut_and_wrong() -> Step:
    """What was cut is wrong."""
    return cut_ones((0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0), range(3))


RULE = Rule(
    code="RWD001",
    name="cut-attempt-with-full-reward",
    kind="S",
    needs=("row.reward", "row.turns"),
    taints=("rewards", "policy"),
    applies=lambda step: is_sampled(step) and step.setup.truncated not in ("mask", "penalize"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(cut_and_wrong,),
)
