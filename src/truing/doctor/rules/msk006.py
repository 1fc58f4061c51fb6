"""MSK006: Bad attempts are never trained.

What: Attempts that earned less than the mean of their group have no token under the policy loss, while the
others have some.

Why it is silent: The good attempts are reinforced, so the reward may even rise. But nothing is ever pushed
down: a malformed call costs nothing, and goes on being made. It comes from code that cannot tell which
tokens of a broken answer were chosen, and masks all of them.

How it is measured: For each attempt, the tokens that the declared mask policy keeps and those that the loss
reads. An attempt is silenced where there are some of the first and none of the second. Silenced attempts
are counted below the mean of their group, and not below it; and how likely it is that as many, taken
blindly, are the worst of each group.

Healthy look-alikes: Attempts that failed, or whose group was left out, are in no update. Cut ones, where
they are declared to be masked. Rejection sampling keeps the good ones, and says so. In a group of equal
reward nobody is below its mean, and it is not counted.

Fix: An answer that cannot be parsed is still made of tokens that the policy chose: keep its mask as
sampling made it, and let its low reward speak. Where bad attempts are left out on purpose, declare it.

References: docs/agents.md, https://arxiv.org/abs/2402.03300
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from truing.doctor.evidence import Row, Step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.rules.msk002 import declared_mask, masked
from truing.doctor.verdict import Claim, Verdict
from truing.types.status import FinishReason
from truing.types.token import Excluded

ENOUGH = 4
"""Silenced attempts; of fewer nothing is said."""

CHANCE = 1e-4
"""That the silenced ones are the worst of every group, if outcome had no part in it."""


class Measured(NamedTuple):
    """Attempts of groups of unequal reward: below the mean of theirs, and others; the silenced of each."""

    below: int
    below_silenced: int
    others: int
    others_silenced: int
    chance: float  # that silenced attempts, taken blindly, are the worst of each group; 1 where they are not
    explained: bool  # the record gives a reason, or no reasons are on record
    row: int  # of the first that is silenced


@dataclass
class Attempt:
    """What the loss reads of an attempt, over all its rows."""

    group: str
    reward: float
    row: int
    wanted: int = 0
    trained: int = 0
    may_be_out: bool = False  # cut, and perhaps declared to be left out
    explained: bool = False

    @property
    def silenced(self) -> bool:
        """Whether nothing of it is read, though there is something to read."""
        return self.wanted > 0 and self.trained == 0 and not self.may_be_out


def measure(step: Step) -> Measured:
    """Count attempts by outcome, and by whether the loss reads them."""
    groups: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in _attempts(step):
        groups[attempt.group].append(attempt)
    below, others, chance = list[Attempt](), list[Attempt](), 1.0
    for group in groups.values():
        rewards = [attempt.reward for attempt in group]
        if len(set(rewards)) > 1:  # in a group of equal reward nobody is better
            mean = math.fsum(rewards) / len(rewards)
            below += [attempt for attempt in group if attempt.reward < mean]
            others += [attempt for attempt in group if attempt.reward >= mean]
            chance *= _chance(group)
    silenced, silenced_others = ([each for each in part if each.silenced] for part in (below, others))
    return Measured(
        len(below),
        len(silenced),
        len(others),
        len(silenced_others),
        min(chance, 1.0),
        any(each.explained for each in silenced),
        silenced[0].row if silenced else 0,
    )


def _chance(group: Sequence[Attempt]) -> float:
    """That as many attempts of a group, taken blindly, are its worst; infinite where these are not."""
    silenced = sorted(attempt.reward for attempt in group if attempt.silenced)
    heard = [attempt.reward for attempt in group if not attempt.silenced]
    if not silenced or not heard:
        return 1.0
    if max(silenced) > min(heard):
        return math.inf
    ties = sum(attempt.reward == silenced[-1] for attempt in group)
    return math.comb(ties, silenced.count(silenced[-1])) / math.comb(len(group), len(silenced))


def _attempts(step: Step) -> list[Attempt]:
    """All attempts of the update that have a reward."""
    wanted_N, mask_N = declared_mask(step), step.tokens["policy_mask"]
    if step.setup.mask is None and "structure" in step.tokens:  # then it may be declared to be out
        wanted_N = wanted_N & ~step.tokens["structure"]
    reasons_N = step.tokens.get("excluded")
    given = torch.tensor([Excluded.NOT_KEPT, Excluded.CUT])
    attempts: dict[str, Attempt] = {}
    for index, row, part in step.slices():
        if not row.kept or not math.isfinite(row.reward):
            continue
        attempt = attempts.setdefault(row.rollout_id, Attempt(row.group_id, row.reward, index))
        attempt.wanted += int(wanted_N[part].sum())
        attempt.trained += int(mask_N[part].sum())
        attempt.may_be_out |= step.setup.truncated in ("mask", None) and _cut(row)
        attempt.explained |= reasons_N is None or bool(torch.isin(reasons_N[part].long(), given).any())
    return list(attempts.values())


def _cut(row: Row) -> bool:
    """Whether an attempt was cut, by any sign of it."""
    ended = row.turns[-1].finish_reason if row.turns else None
    return row.truncated or row.status == "truncated" or ended == FinishReason.LENGTH


def judge(found: Measured) -> Iterator[Claim]:
    """Who is silenced must not depend on what was earned, unless somebody declares it."""
    if found.below_silenced < ENOUGH:
        return
    every = found.below_silenced == found.below and not found.others_silenced
    if every or found.chance < CHANCE:
        yield Claim(
            Verdict.PROVEN if every and not found.explained else Verdict.SUSPECT,
            f"{found.below_silenced} of {found.below} attempts below the mean of their group have no trained"
            f" token, and {found.others_silenced} of the {found.others} others",
            got="the loss reads good attempts alone"
            if every
            else f"they are the worst of every group, by chance {found.chance:.1g}",
            expected="the mask as it is for any other attempt, and an advantage below 0",
            row=found.row,
            specificity=3,
        )


def example() -> Step:
    """Whoever wrote a broken call is masked whole, and the record calls it scaffolding."""
    healthy = example_step(rewards=(1.0, 0.0, 0.5, 0.0, 1.0, 0.0, 0.0, 1.0))
    bad = [row.reward == 0 for row in healthy.rows]
    return masked(healthy, torch.tensor(bad)[healthy.row_of_token], Excluded.STRUCTURE)


def all_right_or_all_wrong() -> Step:
    """One group has no signal and is left out; the other is trained."""
    step = example_step(rewards=(0.0,) * 4 + (1.0, 0.0, 0.0, 1.0))
    return masked(step, step.row_of_token < 4, Excluded.NOT_KEPT)


RULE = Rule(
    code="MSK006",
    name="bad-attempts-never-trained",
    kind="E",
    needs=("origin", "policy_mask", "row.reward", "row.group_id"),
    taints=("policy",),
    applies=lambda step: (
        step.setup.algo not in ("sft", "rft")
        and (step.setup.mask != "no_structure" or "structure" in step.tokens)
    ),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(all_right_or_all_wrong,),
)
