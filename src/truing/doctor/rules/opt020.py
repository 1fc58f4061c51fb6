"""OPT020: A gate does not do what the recipe declares.

What: Rollouts with a reward are not trained, and no gate leaves them out. Or `gates.equal_groups` leaves out
a group whose rewards differ, or keeps one that it drops. Or a step is trained, or skipped, against `kl.cap`
or `gates.min_trained_tokens`.

Why it is silent: Less is trained than was sampled, and every number of what is trained is right. Where it
depends on the reward, as where a reward of 0 counts as a missing one, the baseline moves, too.

How it is measured: By group, the rewards and whether its tokens train. A rollout with a reward trains if its
group has another one with a reward. The KL of each optimizer step, the mean of k3 over its computed samples,
is compared with the cap, and the trained tokens of the step with their least number.

Healthy look-alikes: Failed rollouts, those alone in their group, truncated ones that a gate masks, answers
that rejection sampling leaves out. A KL at the cap, up to rounding. The first optimizer step of a step, which
`stop_epochs` does not skip.

Fix: A reward of 0 is a reward: leave out what failed by its status. The cap is for the mean over tokens.

References: https://arxiv.org/abs/2503.14476 §3.2, docs/control.md
"""

import math
from collections import defaultdict
from collections.abc import Iterator

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step
from truing.doctor.oracle.kl import kl_estimates
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Excluded, Origin
from truing.utils.format import with_count

SHOWN = 4
"""Rewards that a message has."""

NEAR = 1e-3
"""Of the cap: a KL so near to it may be on either side by rounding."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim groups and steps that a gate treats otherwise than declared."""
    yield from _other_skips(step)
    yield from _too_few_trained(step)
    yield from _other_groups(step)


def _other_skips(step: Step) -> Iterator[Claim]:
    """Claim optimizer steps that are skipped within the cap, or not skipped beyond it.

    Only the last one of a step may be skipped: the step ends with it.
    """
    cap, action = step.setup.kl_cap, step.setup.kl_cap_action
    if cap is None or not {"new_logprob", "ref_logprob", "kl_mask"} <= {*step.tokens}:
        return
    steps = list(step.at_each_optimizer_step())
    for place, (number, this) in enumerate(steps):
        x_N = (this.tokens["new_logprob"] - this.tokens["ref_logprob"]).double()[this.tokens["kl_mask"]]
        kl_n = kl_estimates(x_N[~x_N.isnan()])["k3"]
        if not len(kl_n) or abs((kl := float(kl_n.mean())) - cap) < NEAR * cap:
            continue
        due = kl > cap and (number > 0 or action != "stop_epochs")
        skipped = place == len(steps) - 1 and step.metrics.get("gate/held_back", 0.0) > 0
        if due != skipped:
            yield Claim(
                Verdict.PROVEN,
                f"optimizer step {number + 1} of {len(steps)} is {'' if skipped else 'not '}skipped",
                got=f"a KL of {kl:.4g} nats per token to the reference",
                expected=f"{'more' if skipped else 'less'} than kl.cap = {cap:g}",
                specificity=4.2,
            )


def _too_few_trained(step: Step) -> Iterator[Claim]:
    """Claim a step that is trained with fewer tokens than the gate asks for."""
    least, trained = step.setup.min_trained_tokens, int(step.tokens["policy_mask"].sum())
    if least and trained < least and not step.metrics.get("gate/held_back", 0.0):
        yield Claim(
            Verdict.PROVEN,
            "the step is trained, against gates.min_trained_tokens",
            got=with_count(trained, "trained token"),
            expected=f"at least {least}",
            specificity=4.2,
        )


def _other_groups(step: Step) -> Iterator[Claim]:
    """Claim rollouts or groups that are left out against the gates, and equal ones that `drop` keeps."""
    rewards, left_out, trained = _groups(step)
    size = 2 if (step.setup.group_size or 1) > 1 else 1  # rewards that a baseline needs
    differs = {name: max(each) > min(each) for name, each in rewards.items() if len(each) >= size}
    action = step.setup.equal_groups
    wrong = [name for name in differs if name in left_out and (differs[name] or action is None)]
    if action == "drop" and any(differs.values()):
        wrong += [name for name in differs if not differs[name] and name in trained]
    if wrong:
        of_first = ", ".join(f"{each:g}" for each in rewards[wrong[0]][:SHOWN])
        yield Claim(
            Verdict.PROVEN,
            f"{len(wrong)} of {with_count(len(differs), 'group')}"
            + (" have graded rollouts that are" if wrong[0] in left_out else " of equal rewards are")
            + (" not trained, and no gate leaves them out" if wrong[0] in left_out else " trained"),
            got=f"rewards of {of_first} in {wrong[0]}",
            expected="each graded rollout is trained"
            if action is None
            else f"gates.equal_groups = {action}: groups of equal rewards are left out, and no others",
            specificity=4.2,
        )


def _groups(step: Step) -> tuple[dict[str, list[float]], set[str], set[str]]:
    """Return the rewards of each group, the groups with a rollout left out, and those with a trained one."""
    rewards, left_out, trained = defaultdict[str, dict[str, float]](dict), set[str](), set[str]()
    for _, sample, part in step.slices():
        excluded = step.tokens["excluded"][part][step.tokens["origin"][part] == Origin.SAMPLED]
        if not math.isnan(sample.reward):
            rewards[sample.group_id][sample.rollout_id] = sample.reward
            # tokens that a mask leaves out in any case keep their own reason
            left_out |= {sample.group_id} if (excluded == Excluded.NOT_KEPT).any() else set()
            trained |= {sample.group_id} if (excluded == Excluded.NO).any() else set()
    return {name: [*each.values()] for name, each in rewards.items()}, left_out, trained


def _left_out(*indices: int, **setup: object) -> Step:
    """Return a step of two groups of four, of which some samples are not trained."""
    step = example_step(setup=setup)
    left_out = torch.zeros_like(step.tokens["policy_mask"])
    for index in indices:
        left_out[step.part(index)] = True
    sampled = step.tokens["origin"] == Origin.SAMPLED
    excluded = step.tokens["excluded"].masked_fill(left_out & sampled, Excluded.NOT_KEPT)
    return changed_step(step, excluded=excluded)


def example() -> Step:
    """A rollout with a reward is not trained."""
    return _left_out(1)


def group_left_out() -> Step:
    """A group is left out, although its rewards differ."""
    return _left_out(0, 1, 2, 3, equal_groups="drop")


def skipped_below() -> Step:
    """The cap skips a step whose KL is below it."""
    step = example_step(setup={"kl_cap": 0.5, "kl_cap_action": "skip"})
    return changed_step(step, metrics={"gate/held_back": 1.0}, ref_logprob=step.tokens["new_logprob"] - 0.01)


def too_few() -> Step:
    """A step with fewer tokens than the gate asks for is trained."""
    return example_step(setup={"min_trained_tokens": 1000})


def not_skipped() -> Step:
    """The KL is below the cap, and nothing is skipped."""
    return changed_step(skipped_below(), metrics={"gate/held_back": 0.0})


def kept() -> Step:
    """All rollouts are trained."""
    return example_step()


RULE = Rule(
    code="OPT020",
    name="gate-not-as-declared",
    kind="E",
    needs=("excluded", "policy_mask", "sample.reward"),
    taints=("policy",),
    applies=lambda step: is_sampled(step) and step.setup.trainer == "truing" and step.setup.algo != "rft",
    judge=judge,
    example=example,
    lookalikes=(not_skipped, kept),
)
