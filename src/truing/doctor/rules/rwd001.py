"""RWD001: Attempts that were cut earn all there is.

What: More than a handful of attempts whose last turn was cut at its limit have the largest reward of the
update, and they are a tenth or more of all that have it.

Why it is silent: The reward goes up. What is reinforced with it is everything the attempt did, running into
the limit among it: a policy that never stops is told that it is right.

How it is measured: Attempts are counted whose last turn ended at its limit of tokens, and those of them
with the largest reward of the update, beside all attempts with that reward.

Healthy look-alikes: An agent that did its work and was cut in the words after it: now and then. Cut
attempts that are declared to be left out, or to cost something. An update in which all rewards are equal
tells nothing.

Fix: Let the grader see how the attempt ended, or set `gates.truncated`. Where an answer is right before the
limit and talks on, give the stop a chance: see MSK004 and MSK008.

References: https://arxiv.org/abs/2503.14476, docs/control.md
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from truing.doctor.evidence import Row, Step
from truing.doctor.made import but, made
from truing.doctor.rule import Rule, drawn
from truing.doctor.verdict import Claim, Verdict
from truing.outcomes import FinishReason
from truing.types import TurnSpan

HANDFUL = 5
"""Attempts that may have been right in time."""

TENTH = 0.1
"""Of all that is rewarded most."""


class Measured(NamedTuple):
    """Attempts that were cut at the limit of a turn, and what they earned."""

    cut: int
    full: int  # the part of them with the largest reward
    all_full: int  # attempts with that reward, cut or not
    reward: float
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
    return Measured(
        len(cut), len(full), sum(reward == best for reward in rewards.values()), best, full[0] if full else 0
    )


def _cut(row: Row) -> bool:
    """Whether an attempt ends in this row, at the limit of its last turn."""
    return row.truncated and bool(row.turns) and row.turns[-1].finish_reason == FinishReason.LENGTH


def judge(found: Measured) -> Iterator[Claim]:
    """A few may have been right in time."""
    if found.full > HANDFUL and found.full >= TENTH * found.all_full:
        yield Claim(
            Verdict.SUSPECT,
            f"{found.full} of {found.cut} attempts that were cut at the limit have the largest reward of the"
            f" update, {found.reward:.4g}",
            got=f"they are {found.full} of {found.all_full} attempts with that reward",
            expected="an attempt that never came to its end not to be the best there is",
            row=found.row,
        )


def _cut_ones(rewards: tuple[float, ...], how_many: int) -> Step:
    step = made(answers=(8,) * how_many + (4,) * (8 - how_many), rewards=rewards)
    ids = step.tokens["token_ids"].clone()
    rows = {}
    for index in range(how_many):
        end = step.lengths[index]
        ids[step.starts[index] + end - 1] = 30
        turn = TurnSpan(4, end, FinishReason.LENGTH, 0, "a")
        rows[index] = {"truncated": True, "status": "truncated", "turns": (turn,)}
    return but(step, token_ids=ids, rows=rows)


def example() -> Step:
    """Six answers ran into the limit, and each is rewarded as if it had been finished."""
    return _cut_ones((1.0,) * 7 + (0.0,), 6)


def cut_and_wrong() -> Step:
    """What was cut is wrong."""
    return _cut_ones((0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0), 3)


RULE = Rule(
    code="RWD001",
    name="cut-attempt-with-full-reward",
    kind="S",
    needs=("row.reward", "row.turns"),
    taints=("rewards", "policy"),
    when=lambda step: drawn(step) and step.setup.truncated not in ("mask", "penalize"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(cut_and_wrong,),
)
