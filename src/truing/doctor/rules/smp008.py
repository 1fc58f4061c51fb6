"""SMP008: Rollouts are more alike than chance allows.

What: Rollouts of one group have the same tokens, or repeat those of the previous batch, although the policy
was uncertain. They shared random numbers, or the sampler hardly used them.

Why it is silent: Each rollout by itself is a fair draw, so ratios, KL and every bet on single tokens are
right. A group of identical rollouts has one reward, which looks like a task that is learned or too hard.

How it is measured: Given one rollout, an independent one has the same tokens with probability p, the
product of the recorded probabilities. A bet pays ½ + 1/(2p) if they are the same, and ½ otherwise: on
average 1. The rule bets on each further rollout of a group against the first by name, and on each rollout
against that of the same place of the previous batch, if the prompt is the same. It divides their product by
n (n + 1) at the n-th step of a stage, so that all of a run's bets together exceed 10⁶ with a probability
of at most one in a million.

Healthy look-alikes: A policy that is nearly certain: the same answer is expected, and pays almost nothing.
Short answers, of which two may agree. Forced tokens, which are not draws. The rule ignores demonstrations,
and answers selected by their reward.

Fix: Give each rollout its own random numbers. Look for a seed set before each call of the sampler, or
passed to each request; a key without the rollout or the step; a cache of answers by prompt. If SMP007 finds
nearly greedy draws, that is the cause.

References: https://arxiv.org/abs/2210.01948, https://github.com/pytorch/pytorch/issues/5059
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.rules.opt012 import batched
from truing.doctor.verdict import Claim, Verdict
from truing.types.sample import SampleFacts
from truing.types.token import Origin

ODDS = 6.0
"""log10 of the payoff for a claim."""


class Bets(NamedTuple):
    """Compared rollouts, identical ones, and the payoff of all bets."""

    compared: int
    same: int
    log10: float


class Measured(NamedTuple):
    """Bets within groups, and against the previous batch."""

    group: Bets
    before: Bets
    number: int  # of the step in its stage, from 1


def measure(step: Step) -> Measured:
    """Bet on each rollout with a known probability."""
    first_samples = _first_samples(step)
    within, before = list[tuple[bool, float]](), list[tuple[bool, float]]()
    firsts: dict[str, tuple[tuple[int, ...], float]] = {}
    for row, ids, logprob in first_samples.values():
        if row.group_id in firsts:
            other, first_logprob = firsts[row.group_id]
            within.append((ids == other, first_logprob))
        else:
            firsts[row.group_id] = ids, logprob
    batches = [each.facts["batch"] for each in step.past_of_stage if "batch" in each.facts]
    if "batch" in step.facts and batches:
        for (name, prompt, ids), (_, other, was) in zip(
            step.facts["batch"]["rows"], batches[-1]["rows"], strict=False
        ):
            if prompt == other and name in first_samples:
                before.append((ids == was, first_samples[name][2]))
    return Measured(bets(within), bets(before), step.steps_before + 1)


def _first_samples(step: Step) -> Mapping[str, tuple[SampleFacts, tuple[int, ...], float]]:
    """Return, by name and in order, each rollout's first sample, ids, and log-probability if known."""
    recorded = "sampler_logprob" in step.tokens
    logprob_N = step.tokens["sampler_logprob" if recorded else "old_logprob"].double()
    sampled_N = step.tokens["origin"] == Origin.SAMPLED
    first_samples: dict[str, tuple[SampleFacts, tuple[int, ...], float]] = {}
    rollouts = set[str]()
    for index, row, where in sorted(step.slices(), key=lambda each: each[1].sample_id):
        if row.rollout_id in rollouts:
            continue
        rollouts.add(row.rollout_id)
        total = float(logprob_N[where][sampled_N[where]].sum())
        # after the first optimizer step other weights score than sampled
        if not math.isnan(total) and (recorded or step.optimizer_step_of_sample[index] == 0):
            first_samples[row.sample_id] = row, tuple(step.tokens["token_ids"][where].tolist()), total
    return first_samples


def bets(outcomes: list[tuple[bool, float]]) -> Bets:
    """Return the payoff of half the wealth on each outcome: ½ + ½ · [the same] ÷ p."""
    gains = [math.log10(0.5) + (_log10_one_and(-logprob) if same else 0.0) for same, logprob in outcomes]
    return Bets(len(outcomes), sum(same for same, _ in outcomes), math.fsum(gains))


def _log10_one_and(nats: float) -> float:
    """Return log10 (1 + e^nats)."""
    return float(torch.logaddexp(torch.zeros(()).double(), torch.tensor(nats).double())) / math.log(10)


def judge(step: Step) -> Iterator[Claim]:
    """Claim a wealth beyond that of independent draws."""
    measured = measure(step)
    spent = math.log10(measured.number * (measured.number + 1))
    messages = {
        "rollouts of one group are the same": measured.group,
        "rollouts repeat those of the previous batch": measured.before,
    }
    for what, pay in messages.items():
        odds = pay.log10 - spent
        if odds >= ODDS:
            yield Claim(
                Verdict.EVIDENCE,
                f"{what}, although the policy was uncertain: random numbers are shared, or hardly used",
                got=f"{pay.same} of {pay.compared} with the same tokens; odds of 10^{odds:.1f} : 1",
                expected=f"below 10^{ODDS:.0f} : 1 for independent draws",
                log10_odds=odds,
                specificity=1.9,  # a winning bet on single tokens names the cause
            )


def _alike(per_token: float) -> Step:
    """Return two groups of four identical rollouts; each token has this log-probability."""
    step = example_step(answers=(4,) * 4 + (5,) * 4, rewards=(1.0,) * 4 + (0.0,) * 4)
    ids = torch.cat([step.tokens["token_ids"][:8].repeat(4), step.tokens["token_ids"][32:41].repeat(4)])
    logprob = step.tokens["sampler_logprob"] * 0 + per_token
    return changed_step(
        step, token_ids=ids, sampler_logprob=logprob, old_logprob=logprob, new_logprob=logprob
    )


def example() -> Step:
    """Rollouts of four and five tokens with a probability of a tenth each."""
    return _alike(math.log(0.1))


def certain() -> Step:
    """Rollouts that agree because the policy is nearly certain."""
    return _alike(math.log(0.99))


def prompts_repeated() -> Step:
    """The prompts of the previous batch, and other answers."""
    earlier = batched(example_step(answers=(5, 4, 4, 5, 3, 5, 5, 4)), 0, "grpo/0/").facts["batch"]
    return replace(
        changed_step(batched(example_step(), 1, "grpo/1/"), past=[past_step(0, facts={"batch": earlier})]),
        step=1,
    )


RULE = Rule(
    code="SMP008",
    name="rollouts-alike",
    kind="X",
    needs=("token_ids", "origin", "sample.group_id", "sampler_logprob | old_logprob"),
    taints=("policy",),
    applies=lambda step: is_sampled(step) and step.setup.algo not in ("sft", "rft"),
    judge=judge,
    example=example,
    lookalikes=(certain, prompts_repeated),
)
