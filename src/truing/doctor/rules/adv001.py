"""ADV001: Advantages differ from a recomputation from the rewards of their groups.

What: The trainer used an advantage that differs from the declared formula, recomputed from the reward of
the rollout and the rewards of its group.

Why it is silent: Any numbers of about the right size train something. Rewards of other groups, a shuffled
order, a missing baseline or another denominator change which answers are reinforced, and no scalar shows
it.

How it is measured: A second implementation in Python's floats recomputes each advantage from the recorded
rewards and group ids. It counts each rollout once, even if the rollout is cut into several sequences. It
compares every trained token.

Healthy look-alikes: A group of equal rewards has advantages of 0 throughout. A group that lost a member to
an error has a baseline over the remaining members. The cost of a KL in the reward and declared penalties
for cut or long rollouts are subtracted from the rewards. With a reward for each turn, each turn has its own
advantage.

Fix: Group rewards by group id, not by position. Compute mean and deviation over rollouts, not over
sequences or tokens, before sharding or shuffling.

References: https://arxiv.org/abs/2402.03300, https://arxiv.org/abs/2503.20783,
https://arxiv.org/abs/2402.14740
"""

from collections.abc import Iterator

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.oracle.advantages import expected_group_advantages
from truing.doctor.oracle.credit import GROUP_FORMULAS
from truing.doctor.rule import Rule
from truing.doctor.token_places import places
from truing.doctor.verdict import Claim, Verdict
from truing.utils.format import with_count

ROUNDING = 1e-4
"""Advantages are of the order of 1, and float32 keeps 1e-7 of them."""


def judge(step: Step) -> Iterator[Claim]:
    """Recompute, and claim any difference under the policy loss: the formula has one value."""
    expected_N = expected_group_advantages(step)
    got_N = step.tokens["advantage"].double()
    compared_N = step.tokens["policy_mask"] & ~expected_N.isnan()
    differs_N = compared_N & ~((got_N - expected_N).abs() <= ROUNDING)
    if wrong := places(step, differs_N, int(compared_N.sum())):
        token = step.starts[wrong.row] + wrong.start
        opposite = float((got_N * expected_N < 0)[differs_N].double().mean())
        turned = f", {opposite:.0%} of them with the other sign" if opposite else ""
        yield Claim(
            Verdict.PROVEN,
            f"{with_count(wrong.tokens, 'token')} of {with_count(wrong.rows, 'sample')} whose"
            f" advantage differs from a recomputation from the rewards{turned}",
            got=f"{float(got_N[token]):.5g} at sample {wrong.row}",
            expected=f"{float(expected_N[token]):.5g}",
            **wrong.claim_fields,
            specificity=2,
        )


def example() -> Step:
    """Rewards are shuffled before the advantages are computed."""
    healthy = example_step()
    shuffled = healthy.tokens["advantage"].flip(0).nan_to_num(0.5)
    return changed_step(healthy, advantage=shuffled.masked_fill(~healthy.tokens["policy_mask"], torch.nan))


def equal() -> Step:
    """Groups of equal reward have advantages of 0."""
    return example_step(rewards=(1.0,) * 4 + (0.1,) * 4)


RULE = Rule(
    code="ADV001",
    name="advantage-recomputed",
    kind="E",
    needs=(
        "policy_mask",
        "advantage",
        "sample.reward",
        "sample.group_id",
        "setup.advantage",
        "setup.advantage_eps",
    ),
    taints=("policy",),
    applies=lambda step: (
        step.setup.advantage in (*GROUP_FORMULAS, None)
        and step.setup.algo in ("grpo", "rloo", None)
        # the record lacks the samples of skipped steps
        and not step.metrics.get("gate/held_back")
    ),
    judge=judge,
    example=example,
    lookalikes=(equal,),
)
