"""ADV009: The advantages of a group do not add up to 0.

What: Each rollout is compared with the mean of its group, so the advantages of a whole group add up to 0.
Here they do not: the baseline is that of another group, or the trainer changed some advantages afterwards.

Why it is silent: The loss raises the probability of all rollouts of a group a little, or lowers it. That
moves the policy towards its own samples, or away from them, whatever their rewards. Entropy falls or rises,
and the baseline looks unrelated.

How it is measured: The rule takes the advantage of each rollout from its trained tokens, and sums over each
group with a complete record. The sum is 0 for any denominator, so the rule needs no formula.

Healthy look-alikes: A group that lost rollouts to errors: its record is incomplete. A rollout that a mask
or a gate leaves out: the rule does not sum its group. An advantage per turn or per token: the rule does not
sum those either.

Fix: Subtract the mean of the group from each of its rewards, once. Do not clip, drop or whiten advantages
after that.

References: https://arxiv.org/abs/2402.03300, https://arxiv.org/abs/2402.14740
"""

import math
from collections import defaultdict
from collections.abc import Iterator

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_optimizer_steps, with_token_gradients
from truing.doctor.oracle.credit import group_advantage
from truing.doctor.rule import Rule, is_grouped
from truing.doctor.token_places import whole_sample
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Excluded

ROUNDING = 1e-3
"""Of the largest advantage of a group, times its members."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim whole groups whose sum is not 0: deviations from a mean add up to 0."""
    groups, size = _advantages_of_groups(step), step.setup.group_size
    wholes = {
        name: list(each.values())
        for name, each in groups.items()
        if len(each) >= max(size or 2, 2) and not any(map(math.isnan, each.values()))
    }
    sums = {name: math.fsum(each) for name, each in wholes.items()}
    wrong = {
        name: total
        for name, total in sums.items()
        if abs(total) > ROUNDING * len(wholes[name]) * max(map(abs, wholes[name]))
    }
    if wrong:
        worst = max(wrong, key=lambda name: abs(wrong[name]))
        first = next(i for i, row in enumerate(step.samples) if row.group_id == worst and step.kept[i])
        yield Claim(
            Verdict.SUSPECT if size is None else Verdict.PROVEN,
            f"the advantages of {len(wrong)} of {len(wholes)} groups do not add up to 0",
            got=f"a mean of {wrong[worst] / len(wholes[worst]):.4g} in group {worst}",
            expected="0",
            **whole_sample(step, first),
            specificity=1.9,
        )


def _advantages_of_groups(step: Step) -> dict[str, dict[str, float]]:
    """Return the advantage of each rollout, by group; NaN if its tokens have several."""
    groups: dict[str, dict[str, float]] = defaultdict(dict)
    for index, row, part in step.slices():
        if step.kept[index] and not math.isnan(row.reward):
            here_T = step.tokens["advantage"][part][step.tokens["policy_mask"][part]].double()
            one = float(here_T[0]) if len(here_T) and here_T.min() == here_T.max() else math.nan
            before = groups[row.group_id].get(row.rollout_id, one)
            groups[row.group_id][row.rollout_id] = one if before == one else math.nan
    return groups


def example() -> Step:
    """The trainer drops negative advantages."""
    healthy = example_step(setup={"trainer": "trl", "advantage_eps": None})
    return with_token_gradients(changed_step(healthy, advantage=healthy.tokens["advantage"].clamp(min=0)))


def lost_one() -> Step:
    """Two rollouts failed: the baseline is over the others."""
    step = example_step()
    lost = {index: {"reward": math.nan} for index in (3, 7)}
    left = [row.reward for index, row in enumerate(step.samples) if index not in lost]
    groups = [left[:3], left[3:]]
    advantage_B = [
        math.nan if index in lost else group_advantage(row.reward, groups[index // 4], left, "group", 1e-4)
        for index, row in enumerate(step.samples)
    ]
    present_N = torch.tensor([index not in lost for index in range(8)])[step.sample_of_token]
    mask_N = step.tokens["policy_mask"] & present_N
    advantage_N = torch.tensor(advantage_B)[step.sample_of_token].masked_fill(~mask_N, torch.nan)
    why_N = torch.where(present_N, step.tokens["excluded"], Excluded.NOT_KEPT).to(torch.uint8)
    why_N = torch.where(step.tokens["policy_mask"], why_N, step.tokens["excluded"])
    new_N = step.tokens["new_logprob"].masked_fill(~present_N, torch.nan)
    streams = {"advantage": advantage_N, "policy_mask": mask_N, "kl_mask": mask_N, "new_logprob": new_N}
    return with_token_gradients(
        with_optimizer_steps(
            changed_step(step, samples=lost, excluded=why_N, tokens=streams), dict.fromkeys(lost, -1)
        )
    )


RULE = Rule(
    code="ADV009",
    name="advantages-do-not-cancel",
    kind="E",
    needs=("advantage", "policy_mask", "sample.reward", "sample.group_id", "setup.advantage"),
    taints=("policy",),
    applies=is_grouped,
    judge=judge,
    example=example,
    lookalikes=(lost_one,),
)
