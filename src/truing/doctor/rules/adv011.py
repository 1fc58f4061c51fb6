"""ADV011: Advantages follow a formula that nobody means.

What: The trainer's formula of advantages is not declared. The rows show it: it is a common one with the other
sign, or with other groups than those of the rows.

Why it is silent: Advantages of such a formula have the mean, the deviation and the range of right ones. With
the other sign the loss lowers what was paid. With groups across prompts, each rollout is compared with
rollouts of other prompts, so that easy prompts are raised and hard ones lowered.

How it is measured: The rule tries all common formulas on the rewards and groups of the rows: with the mean of
the group, of the others or of all rewards, divided by each deviation with each usual ε or not at all; each
with both signs, and with the groups that a transposed reshape makes. It claims a mistake only if no formula
without one fits.

Healthy look-alikes: Two prompts of which each got the same rewards have equal advantages with right and
transposed groups: a right formula fits too. Advantages for each token follow no formula of whole rewards: the
rule says nothing of them.

Fix: Group rewards by the id of the prompt and not by position, and subtract the baseline from the reward. A
trainer that means it declares it: `advantage = "other: what it does"`.

References: docs/trace.md, https://arxiv.org/abs/2402.03300
"""

from collections.abc import Iterator
from dataclasses import replace

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, with_token_gradients
from truing.doctor.formulas.advantage import Formula, expected_advantages, formulas_of
from truing.doctor.rule import Rule, has_policy_loss
from truing.doctor.verdict import Claim, Verdict


def judge(step: Step) -> Iterator[Claim]:
    """Claim a formula that is a mistake, if none that fits may be meant: chance does not fit all rows."""
    found = formulas_of(step) or set()
    if found and all(each.mistake for each in found):
        formula = min(found, key=lambda each: (bool(each.grouping), each.negated))
        yield Claim(
            Verdict.EVIDENCE,
            f"advantages are {formula}",
            got=f"{formula.mistake}, in all {len(step.samples)} rows",
            expected="a formula that raises what was paid, within the groups of the rows",
            specificity=3,
        )


def _undeclared(formula: Formula) -> Step:
    """Return a step of a trainer that declares nothing, with the advantages of a formula."""
    step = example_step(rewards=(1.0, 0.0, 0.5, 0.0, 1.0, 1.0, 0.25, 1.0))
    step = replace(
        step, setup=replace(step.setup, trainer="other", advantage=None, advantage_eps=None, plain=None)
    )
    rewards, groups = zip(*((row.reward, row.group_id) for row in step.samples), strict=True)
    advantage_N = torch.tensor(expected_advantages(formula, rewards, groups))[step.sample_of_token]
    advantage_N = advantage_N.masked_fill(~step.tokens["policy_mask"], torch.nan)
    return with_token_gradients(changed_step(step, advantage=advantage_N))


def example() -> Step:
    """Advantages have the other sign."""
    return _undeclared(Formula("group", 1e-4, negated=True))


def transposed() -> Step:
    """Groups have one rollout of each prompt."""
    return _undeclared(Formula("none", grouping="transposed"))


def meant() -> Step:
    """The deviation of the population: another formula than Truing's, and a common one."""
    return _undeclared(Formula("group_population", 1e-6))


RULE = Rule(
    code="ADV011",
    name="advantages-of-no-meant-formula",
    kind="M",
    needs=("advantage", "policy_mask", "sample.reward", "sample.group_id"),
    taints=("policy",),
    applies=lambda step: (
        has_policy_loss(step) and step.setup.trainer != "truing" and step.setup.advantage is None
    ),
    judge=judge,
    example=example,
    lookalikes=(meant,),
)
