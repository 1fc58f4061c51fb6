"""SMP008: Attempts are the same beyond all chance.

What: Attempts of one group have the same tokens, or those of the batch before once more, although the
policy was uncertain what to say. The random numbers they were drawn by were shared, or hardly had a say.

Why it is silent: Each attempt by itself is a fair draw, so ratios, KL and every bet on single tokens are as
they should be. A group whose attempts are all one has one reward, which looks like a task that is learned
or too hard.

How it is measured: Given one attempt, another that is drawn by itself has the same tokens with probability
p, the product of the recorded probabilities. A bet pays ½ + 1/(2p) where they are the same, and ½ where
they are not: on average 1. Bets are made on each further attempt of a group against the first by name, and
on each attempt against that of the same place of the batch before, where the prompt is the same. Their
product is divided by n (n + 1) at the n-th update of a stage, so that all of a run's bets together exceed
10⁶ with a probability of at most one in a million.

Healthy look-alikes: A policy that is nearly certain: the same answer was to be expected, and pays next to
nothing. Short answers, of which two may agree. Forced tokens, which are no draw. Demonstrations, and
answers that were chosen by their reward: they are not asked.

Fix: Give each attempt random numbers of its own: look for a seed that is set before each call of the
sampler, or is handed to each request; a key without the attempt or the step; a cache of answers by prompt.
Where SMP007 finds draws that are nearly greedy, that is the cause.

References: https://arxiv.org/abs/2210.01948, https://github.com/pytorch/pytorch/issues/5059
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch

from truing.doctor.evidence import Row, Step
from truing.doctor.example_steps import changed_step, example_step, past_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.rules.opt012 import batched
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Origin

ODDS = 6.0
"""log10 of what the bets pay at which it is told."""


class Bets(NamedTuple):
    """Attempts that were compared, those that were the same, and what all bets pay together."""

    compared: int
    same: int
    log10: float


class Measured(NamedTuple):
    """Bets within groups, and against the batch before."""

    group: Bets
    before: Bets
    update: int  # of the stage, from 1


def measure(step: Step) -> Measured:
    """Bet on each attempt of which it is known how probable it was."""
    attempts = _attempts(step)
    within, before = list[tuple[bool, float]](), list[tuple[bool, float]]()
    firsts: dict[str, tuple[tuple[int, ...], float]] = {}
    for row, ids, logprob in attempts.values():
        if row.group_id in firsts:
            other, likely = firsts[row.group_id]
            within.append((ids == other, likely))
        else:
            firsts[row.group_id] = ids, logprob
    batches = [each.facts["batch"] for each in step.past_of_stage if "batch" in each.facts]
    if "batch" in step.facts and batches:
        for (name, prompt, ids), (_, other, was) in zip(
            step.facts["batch"]["rows"], batches[-1]["rows"], strict=False
        ):
            if prompt == other and name in attempts:
                before.append((ids == was, attempts[name][2]))
    return Measured(bets(within), bets(before), len(step.past_of_stage) + 1)


def _attempts(step: Step) -> Mapping[str, tuple[Row, tuple[int, ...], float]]:
    """By name, in order: each attempt's first row, its ids, and its log-probability where that is known."""
    recorded = "sampler_logprob" in step.tokens
    logprob_N = step.tokens["sampler_logprob" if recorded else "old_logprob"].double()
    sampled_N = step.tokens["origin"] == Origin.SAMPLED
    found: dict[str, tuple[Row, tuple[int, ...], float]] = {}
    rollouts = set[str]()
    for _, row, where in sorted(step.slices(), key=lambda each: each[1].sample_id):
        if row.rollout_id in rollouts:
            continue
        rollouts.add(row.rollout_id)
        total = float(logprob_N[where][sampled_N[where]].sum())
        if not math.isnan(total) and (recorded or row.inner_step == 0):  # else other weights score than drew
            found[row.sample_id] = row, tuple(step.tokens["token_ids"][where].tolist()), total
    return found


def bets(outcomes: list[tuple[bool, float]]) -> Bets:
    """Half of the wealth on each outcome: ½ + ½ · [the same] ÷ p."""
    gains = [math.log10(0.5) + (_log10_one_and(-logprob) if same else 0.0) for same, logprob in outcomes]
    return Bets(len(outcomes), sum(same for same, _ in outcomes), math.fsum(gains))


def _log10_one_and(nats: float) -> float:
    """log10 (1 + e^nats)."""
    return float(torch.logaddexp(torch.zeros(()).double(), torch.tensor(nats).double())) / math.log(10)


def judge(found: Measured) -> Iterator[Claim]:
    """A wealth that independent draws do not make."""
    spent = math.log10(found.update * (found.update + 1))
    told = {
        "attempts of one group are the same": found.group,
        "attempts are those of the batch before once more": found.before,
    }
    for what, pay in told.items():
        odds = pay.log10 - spent
        if odds >= ODDS:
            yield Claim(
                Verdict.EVIDENCE,
                f"{what}, though the policy was uncertain: random numbers are shared, or hardly asked",
                got=f"{pay.same} of {pay.compared} with the same tokens; odds of 10^{odds:.1f} : 1",
                expected=f"below 10^{ODDS:.0f} : 1 for draws by themselves",
                log10_odds=odds,
                specificity=1.9,  # a bet on single tokens that wins too says what they were drawn by
            )


def _alike(per_token: float) -> Step:
    """Two groups of four attempts; in each all are the same, and each token had this log-probability."""
    step = example_step(answers=(4,) * 4 + (5,) * 4, rewards=(1.0,) * 4 + (0.0,) * 4)
    ids = torch.cat([step.tokens["token_ids"][:8].repeat(4), step.tokens["token_ids"][32:41].repeat(4)])
    logprob = step.tokens["sampler_logprob"] * 0 + per_token
    return changed_step(
        step, token_ids=ids, sampler_logprob=logprob, old_logprob=logprob, new_logprob=logprob
    )


def example() -> Step:
    """Attempts of four and five tokens that had a probability of a tenth each."""
    return _alike(math.log(0.1))


def certain() -> Step:
    """Attempts that agree because the policy is nearly certain."""
    return _alike(math.log(0.99))


def asked_again() -> Step:
    """The prompts of the batch before, and other answers."""
    earlier = batched(example_step(answers=(5, 4, 4, 5, 3, 5, 5, 4)), 0, "grpo/0/").facts["batch"]
    return replace(
        changed_step(batched(example_step(), 1, "grpo/1/"), past=[past_step(0, facts={"batch": earlier})]),
        step=1,
    )


RULE = Rule(
    code="SMP008",
    name="attempts-alike",
    kind="X",
    needs=("token_ids", "origin", "row.group_id", "sampler_logprob | old_logprob"),
    taints=("policy",),
    applies=lambda step: is_sampled(step) and step.setup.algo not in ("sft", "rft"),
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(certain, asked_again),
)
