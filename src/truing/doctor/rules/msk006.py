"""MSK006: Bad rollouts are never trained.

What: Rollouts below the mean reward of their group have no token under the policy loss, while the others
have some.

Why it is silent: The step reinforces the good rollouts, so the reward may even rise. But no probability
is ever lowered: a malformed call costs nothing, and stays as frequent. The cause is code that cannot
identify the chosen tokens of a broken answer, and masks all of them.

How it is measured: For each rollout, the rule counts the tokens that the declared mask policy keeps and
those under the loss. A rollout is silenced if it has some of the first and none of the second. The rule
counts silenced rollouts below and not below the mean of their group, and computes the probability that a
random choice of as many gives the worst of each group.

Healthy look-alikes: Rollouts that failed, or whose group was left out, are not trained. Cut rollouts, if
the recipe masks them. Rejection sampling keeps the good ones, and declares it. In a group of equal reward
no rollout is below the mean, and the group does not count.

Fix: The policy chose the tokens of an answer that cannot be parsed: keep the mask of sampling, and let the
low reward act. If the recipe leaves out bad rollouts on purpose, declare it.

References: docs/agents.md, https://arxiv.org/abs/2402.03300
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from truing.doctor.evidence import Step
from truing.doctor.example_steps import example_step
from truing.doctor.rule import Rule
from truing.doctor.rules.msk002 import declared_mask, masked
from truing.doctor.verdict import Claim, Verdict
from truing.types.sample import SampleFacts
from truing.types.status import FinishReason
from truing.types.token import Excluded

ENOUGH = 4
"""The fewest silenced rollouts for a claim."""

CHANCE = 1e-4
"""Probability that the silenced ones are the worst of every group, independent of the outcome."""


class Measured(NamedTuple):
    """Rollouts of groups of unequal reward: below the mean and others, with the silenced of each."""

    below: int
    below_silenced: int
    others: int
    others_silenced: int
    chance: (
        float  # probability that a random choice gives the worst of each group; 1 if they are not the worst
    )
    explained: bool  # the record gives a reason, or has no reasons at all
    row: int  # of the first silenced one


@dataclass
class RolloutTokens:
    """The trained tokens of a rollout, over all its samples."""

    group: str
    reward: float
    row: int
    wanted: int = 0
    trained: int = 0
    may_be_out: bool = False  # cut, and perhaps masked by the recipe
    explained: bool = False

    @property
    def silenced(self) -> bool:
        """Return whether no token is trained, though the mask policy keeps some."""
        return self.wanted > 0 and self.trained == 0 and not self.may_be_out


def measure(step: Step) -> Measured:
    """Count rollouts by outcome, and by whether they are trained."""
    groups: dict[str, list[RolloutTokens]] = defaultdict(list)
    for rollout in _rollouts(step):
        groups[rollout.group].append(rollout)
    below, others, chance = list[RolloutTokens](), list[RolloutTokens](), 1.0
    for group in groups.values():
        rewards = [rollout.reward for rollout in group]
        if len(set(rewards)) > 1:  # in a group of equal reward no rollout is better
            mean = math.fsum(rewards) / len(rewards)
            below += [rollout for rollout in group if rollout.reward < mean]
            others += [rollout for rollout in group if rollout.reward >= mean]
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


def _chance(group: Sequence[RolloutTokens]) -> float:
    """Return how many random choices give the worst of a group once; infinite if these are not."""
    silenced = sorted(rollout.reward for rollout in group if rollout.silenced)
    trained = [rollout.reward for rollout in group if not rollout.silenced]
    if not silenced or not trained:
        return 1.0
    if max(silenced) > min(trained):
        return math.inf
    ties = sum(rollout.reward == silenced[-1] for rollout in group)
    return math.comb(ties, silenced.count(silenced[-1])) / math.comb(len(group), len(silenced))


def _rollouts(step: Step) -> list[RolloutTokens]:
    """Return all rollouts of the step with a reward."""
    expected_N, mask_N = declared_mask(step), step.tokens["policy_mask"]
    if step.setup.mask is None and "structure" in step.tokens:  # then the recipe may leave it out
        expected_N = expected_N & ~step.tokens["structure"]
    reasons_N = step.tokens.get("excluded")
    reasons = torch.tensor([Excluded.NOT_KEPT, Excluded.CUT])
    rollouts: dict[str, RolloutTokens] = {}
    for index, row, part in step.slices():
        if not step.kept[index] or not math.isfinite(row.reward):
            continue
        rollout = rollouts.setdefault(row.rollout_id, RolloutTokens(row.group_id, row.reward, index))
        rollout.wanted += int(expected_N[part].sum())
        rollout.trained += int(mask_N[part].sum())
        rollout.may_be_out |= step.setup.truncated in ("mask", None) and _cut(row)
        rollout.explained |= reasons_N is None or bool(torch.isin(reasons_N[part].long(), reasons).any())
    return list(rollouts.values())


def _cut(row: SampleFacts) -> bool:
    """Return whether any field records the rollout as cut."""
    ended = row.turns[-1].finish_reason if row.turns else None
    return row.truncated or row.status == "truncated" or ended == FinishReason.LENGTH


def judge(step: Step) -> Iterator[Claim]:
    """Claim silenced rollouts that depend on the reward without a declaration."""
    measured = measure(step)
    if measured.below_silenced < ENOUGH:
        return
    every = measured.below_silenced == measured.below and not measured.others_silenced
    if every or measured.chance < CHANCE:
        yield Claim(
            Verdict.PROVEN if every and not measured.explained else Verdict.SUSPECT,
            f"{measured.below_silenced} of {measured.below} rollouts below the mean of their group have no"
            f" trained token, and {measured.others_silenced} of the {measured.others} others",
            got="the loss trains good rollouts alone"
            if every
            else f"they are the worst of every group (p = {measured.chance:.1g})",
            expected="the same mask as for any other rollout, and an advantage below 0",
            row=measured.row,
            specificity=3,
        )


def example() -> Step:
    """Rollouts with a broken call are masked whole, with scaffolding as the recorded reason."""
    healthy = example_step(rewards=(1.0, 0.0, 0.5, 0.0, 1.0, 0.0, 0.0, 1.0))
    bad = [row.reward == 0 for row in healthy.samples]
    return masked(healthy, torch.tensor(bad)[healthy.sample_of_token], Excluded.STRUCTURE)


def all_right_or_all_wrong() -> Step:
    """One group has no signal and is left out; the other is trained."""
    step = example_step(rewards=(0.0,) * 4 + (1.0, 0.0, 0.0, 1.0), setup={"equal_groups": "drop"})
    return masked(step, step.sample_of_token < 4, Excluded.NOT_KEPT)


RULE = Rule(
    code="MSK006",
    name="bad-rollouts-never-trained",
    kind="E",
    needs=("origin", "policy_mask", "sample.reward", "sample.group_id"),
    taints=("policy",),
    applies=lambda step: (
        step.setup.algo not in ("sft", "rft")
        and (step.setup.mask != "no_structure" or "structure" in step.tokens)
    ),
    judge=judge,
    example=example,
    lookalikes=(all_right_or_all_wrong,),
)
