"""MSK006: Bad attempts are never trained.

What: Attempts that earned less than the mean of their group have no token under the policy loss, while the
others have some.

Why it is silent: The good attempts are reinforced, so the reward may even rise. But nothing is ever pushed
down: a malformed call costs nothing, and goes on being made. It comes from code that cannot tell which
tokens of a broken answer were chosen, and masks all of them.

How it is measured: For each attempt, the tokens that the declared mask policy keeps and those that the loss
reads. An attempt is silenced where there are some of the first and none of the second. Silenced attempts
are counted below the mean of their group, and not below it.

Healthy look-alikes: Attempts that failed, or whose group was left out, are in no update. Cut ones, where
they are declared to be masked. Rejection sampling keeps the good ones, and says so. A whole group of equal
reward has nobody below its mean.

Fix: An answer that cannot be parsed is still made of tokens that the policy chose: keep its mask as
sampling made it, and let its low reward speak. Where bad attempts are left out on purpose, declare it.

References: docs/agents.md, https://arxiv.org/abs/2402.03300
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from truing.doctor.evidence import Row, Step
from truing.doctor.made import made
from truing.doctor.rule import Rule
from truing.doctor.rules.msk002 import declared, masked
from truing.doctor.verdict import Claim, Verdict
from truing.outcomes import FinishReason
from truing.types import Excluded

ENOUGH = 4
"""Silenced attempts; of fewer nothing is said."""

CHANCE = 1e-4
"""Of drawing as many silenced attempts, all of them from below the mean, if outcome had no part in it."""


class Measured(NamedTuple):
    """Attempts below the mean of their group, and the others; how many of each are silenced."""

    below: int
    below_silenced: int
    others: int
    others_silenced: int
    chance: float  # that so many attempts, taken blindly, are all from below
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
    attempts = _attempts(step)
    groups: dict[str, list[float]] = defaultdict(list)
    for attempt in attempts:
        groups[attempt.group].append(attempt.reward)
    mean = {group: math.fsum(rewards) / len(rewards) for group, rewards in groups.items()}
    below = [each for each in attempts if each.reward < mean[each.group] and len(set(groups[each.group])) > 1]
    silenced = [each for each in attempts if each.silenced]
    silenced_below = sum(each.silenced for each in below)
    taken = len(silenced)
    return Measured(
        len(below),
        silenced_below,
        len(attempts) - len(below),
        taken - silenced_below,
        math.comb(len(below), taken) / math.comb(len(attempts), taken) if taken else 1.0,
        any(each.explained for each in silenced),
        silenced[0].row if silenced else 0,
    )


def _attempts(step: Step) -> list[Attempt]:
    """All attempts of the update that have a reward."""
    wanted_N, mask_N = declared(step), step.tokens["policy_mask"]
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
    return row.truncated or row.status == "truncated" or ended is FinishReason.LENGTH


def judge(found: Measured) -> Iterator[Claim]:
    """Who is silenced must not depend on what was earned, unless somebody declares it."""
    if found.below_silenced < ENOUGH or found.others_silenced:
        return
    every = found.below_silenced == found.below
    if every or found.chance < CHANCE:
        yield Claim(
            Verdict.PROVEN if every and not found.explained else Verdict.SUSPECT,
            f"{found.below_silenced} of {found.below} attempts below the mean of their group have no trained"
            f" token; all {found.others} others have some",
            got="the loss reads good attempts alone" if every else f"by chance {found.chance:.1g}",
            expected="the mask as it is for any other attempt, and an advantage below 0",
            row=found.row,
            likely=3,
        )


def example() -> Step:
    """Whoever wrote a broken call is masked whole, and the record calls it scaffolding."""
    healthy = made(rewards=(1.0, 0.0, 0.5, 0.0, 1.0, 0.0, 0.0, 1.0))
    bad = [row.reward == 0 for row in healthy.rows]
    return masked(healthy, torch.tensor(bad)[healthy.row], Excluded.STRUCTURE)


def all_right_or_all_wrong() -> Step:
    """One group has no signal and is left out; the other is trained."""
    step = made(rewards=(0.0,) * 4 + (1.0, 0.0, 0.0, 1.0))
    return masked(step, step.row < 4, Excluded.NOT_KEPT)


RULE = Rule(
    code="MSK006",
    name="bad-attempts-never-trained",
    kind="E",
    needs=("origin", "policy_mask", "row.reward", "row.group_id"),
    taints=("policy",),
    when=lambda step: (
        step.setup.algo not in ("sft", "rft")
        and (step.setup.mask != "no_structure" or "structure" in step.tokens)
    ),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(all_right_or_all_wrong,),
)
