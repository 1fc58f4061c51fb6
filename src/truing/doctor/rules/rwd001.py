"""RWD001: Cut rollouts have the largest reward.

What: Rollouts whose last turn was cut at its limit have the largest reward of the step more often than
the rollouts of the same group that ended by themselves, and not by chance.

Why it is silent: The reward rises. The step reinforces everything in the rollout, including running into
the limit: a policy that never stops gets the full reward.

How it is measured: The rule counts rollouts whose last turn ended at its limit of tokens, and those of them
with the largest reward of the step. If the reward were independent of the end of a rollout, those with
the largest one would be a random choice in each group. Fisher's exact test over all groups gives the
p-value. If it is not small, but a tenth of the best rollouts were cut, that is a FACT: the reward does not
depend on the end of a rollout.

Healthy look-alikes: An agent that finished its work and was cut in the words after it: now and then. Cut
rollouts that the recipe leaves out or penalizes. A step with equal rewards shows nothing.

Fix: Let the grader see the end of the rollout, or leave rollouts that were cut out of the loss (in TRL
`mask_truncated_completions = True`, in a recipe `gates.truncated = "mask"`). If an answer is right before
the limit and goes on, make the stop more likely: see MSK004 and MSK008.

References: https://arxiv.org/abs/2503.14476, docs/control.md
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict
from truing.types.sample import SampleFacts, TurnSpan
from truing.types.status import FinishReason

HANDFUL = 5
"""Rollouts that may be right before the limit."""

TENTH = 0.1
"""Of all rollouts with the largest reward."""


CHANCE = 1e-5
"""p-value: one step in a hundred thousand."""


class Measured(NamedTuple):
    """Rollouts cut at the limit of a turn, and their rewards."""

    cut: int
    full: int  # those with the largest reward
    all_full: int  # rollouts with that reward, cut or not
    reward: float
    chance: float  # p-value: rewards at random within groups
    row: int  # of the first cut one with the largest reward


def measure(step: Step) -> Measured:
    """Count rollouts, each once however many samples it has."""
    rollouts: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(step.samples):
        if step.kept[index] and math.isfinite(row.reward):
            rollouts[row.rollout_id].append(index)
    rewards = {name: step.samples[rows[0]].reward for name, rows in rollouts.items()}
    best = max(rewards.values(), default=math.nan)
    cut = {name: i for name, rows in rollouts.items() for i in rows if _cut(step.samples[i])}
    spread = len(set(rewards.values())) > 1
    full = [i for name, i in cut.items() if spread and rewards[name] == best]
    groups: dict[str, list[str]] = defaultdict(list)
    for name, rows in rollouts.items():
        groups[step.samples[rows[0]].group_id].append(name)
    if all(len(names) == 1 for names in groups.values()):
        groups = {"": list(rollouts)}  # rollouts without groups
    counts = [
        Counter((name in cut, spread and rewards[name] == best) for name in names)
        for names in groups.values()
    ]
    best_of_all = sum(reward == best for reward in rewards.values())
    chance = chance_of(
        [(each[True, True], each[True, False], each[False, True], each[False, False]) for each in counts]
    )
    return Measured(len(cut), len(full), best_of_all, best, chance, full[0] if full else 0)


def chance_of(tables: Sequence[tuple[int, int, int, int]]) -> float:
    """Return Fisher's one-sided p-value of the sum of the first cells, given each table's margins.

    Args:
        tables: counts for each group: cut and best, cut and not, not cut and best, neither.
    """
    distribution, seen = np.ones(1), 0
    for both, cut, best, neither in tables:
        total = both + cut + best + neither
        ways = [
            math.comb(both + best, count) * math.comb(cut + neither, both + cut - count)
            for count in range(min(both + cut, both + best) + 1)
        ]
        every = math.comb(total, both + cut)
        distribution = np.convolve(distribution, [each / every for each in ways])
        seen += both
    return float(distribution[seen:].sum())


def _cut(row: SampleFacts) -> bool:
    """Return whether a rollout ends in this sample, at the limit of its last turn."""
    return row.truncated and bool(row.turns) and row.turns[-1].finish_reason == FinishReason.LENGTH


def judge(step: Step) -> Iterator[Claim]:
    """Claim a significant number; a few may be right before the limit."""
    measured = measure(step)
    if measured.full > HANDFUL and measured.full >= TENTH * measured.all_full:
        suspected = measured.chance < CHANCE
        yield Claim(
            Verdict.SUSPECT if suspected else Verdict.FACT,
            f"{measured.full} of {measured.cut} rollouts cut at the limit have the largest reward of the"
            f" step, {measured.reward:.4g}" + (f" (p = {measured.chance:.1g})" if suspected else ""),
            got=f"they are {measured.full} of {measured.all_full} rollouts with that reward",
            expected="unfinished rollouts with lower rewards",
            row=measured.row,
        )


def cut_ones(rewards: tuple[float, ...], cut: Sequence[int]) -> Step:
    """Return groups of four, with some rollouts cut at the limit."""
    step = example_step(answers=[8 if i in cut else 4 for i in range(len(rewards))], rewards=rewards)
    ids = step.tokens["token_ids"].clone()
    rows = {}
    for index in cut:
        end = step.lengths[index]
        ids[step.starts[index] + end - 1] = 30
        turn = TurnSpan(4, end, FinishReason.LENGTH, 0, "a")
        rows[index] = {"truncated": True, "status": "truncated", "turns": (turn,)}
    return changed_step(step, token_ids=ids, samples=rows)


def example() -> Step:
    """In each group two answers are cut at the limit, and only they are right."""
    return cut_ones((1.0, 1.0, 0.0, 0.0) * 8, [i for i in range(32) if i % 4 < 2])


def cut_and_wrong() -> Step:
    """Cut answers are wrong."""
    return cut_ones((0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0), range(3))


RULE = Rule(
    code="RWD001",
    name="cut-rollout-with-full-reward",
    kind="S",
    needs=("sample.reward", "sample.turns"),
    taints=("rewards", "policy"),
    applies=lambda step: is_sampled(step) and step.setup.truncated not in ("mask", "penalize"),
    judge=judge,
    example=example,
    lookalikes=(cut_and_wrong,),
)
