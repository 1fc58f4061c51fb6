"""LEN004: Answers consist of a stop token alone.

What: Nine of ten turns of a step consist of one token, a stop.

Why it is silent: Every prompt has an answer, and every answer a reward. All of them are alike, so groups
have no spread and the loss is 0. If this holds from the first step, no curve ever falls.

How it is measured: The rule counts turns with a sampled token, and those whose only token is a stop id. If
the record has both, it compares the entropy of the model's own output at these places with that of the
sampling distribution.

Healthy look-alikes: One-word answers, which have a stop after the word. Tasks with an empty right answer:
then an empty answer earns more than nothing, and no rollout of the step earns more.

Fix: Decide which of the two it is. If the model's own output gives the stop most of the mass, compare the
reward of an empty answer with that of a wrong one. If it does not, the sampler changes the distribution: a
penalty that counts the prompt, a template that ends the answer before it begins, a minimum of tokens with
the wrong sign.

References: https://github.com/OpenRLHF/OpenRLHF/issues/985, docs/templates.md
"""

import math
from collections.abc import Iterator
from statistics import fmean

import torch

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import STOP_ID, example_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict
from truing.types.token import Origin

MOST = 0.9
"""Of all turns."""

ENOUGH = 8
"""The fewest turns for a claim."""


def judge(step: Step) -> Iterator[Claim]:
    """Claim empty answers that earn less than the best."""
    turns, empty = _turns(step)
    if turns < ENOUGH or len(empty) < MOST * turns:
        return
    earned = {step.samples[row].rollout_id: step.samples[row].reward for row, _ in empty}
    paid = [reward for reward in earned.values() if math.isfinite(reward)]
    best = max((row.reward for row in step.samples if math.isfinite(row.reward)), default=math.nan)
    if paid and fmean(paid) > 0 and fmean(paid) >= best:
        return
    at = torch.tensor([step.starts[row] + place for row, place in empty], dtype=torch.int64)
    entropy, raw_entropy = (float(step.stream(name)[at].nanmean()) for name in ("entropy", "raw_entropy"))
    row, place = empty[0]
    yield Claim(
        Verdict.SUSPECT,
        f"{len(empty)} of {turns} turns consist of a stop token alone",
        got=""
        if math.isnan(entropy + raw_entropy)
        else f"nats there: {raw_entropy:.2g} of the model, {entropy:.2g} of the sampler",
        expected="answers",
        row=row,
        start=place,
        end=place + 1,
        specificity=2,
    )


def _turns(step: Step) -> tuple[int, list[tuple[int, int]]]:
    """Return how many turns were sampled, and the sample and start of those whose only token is a stop."""
    sampled_N = step.tokens["origin"] == Origin.SAMPLED
    stop_N = torch.isin(step.tokens["token_ids"], torch.tensor(step.setup.stop_ids or ()))
    turns, empty = 0, list[tuple[int, int]]()
    for index, row, part in step.slices():
        for turn in row.turns:
            first, last = part.start + turn.start, part.start + turn.end
            if sampled_N[first:last].any():
                turns += 1
                if last - first == 1 and stop_N[first]:
                    empty.append((index, turn.start))
    return turns, empty


def example() -> Step:
    """All rollouts stop at once, and none earns a reward."""
    return example_step(answers=(1,) * 8, rewards=(0.0,) * 8)


def silence_is_right() -> Step:
    """The right answer is empty, and earns the full reward."""
    return example_step(answers=(1,) * 8, rewards=(1.0,) * 8)


def one_word() -> Step:
    """One token and its stop."""
    step = example_step(answers=(2,) * 8, rewards=(0.0,) * 8)
    ids = step.tokens["token_ids"].masked_fill(step.position_in_sample == 5, STOP_ID)
    return changed_step(step, token_ids=ids)


RULE = Rule(
    code="LEN004",
    name="only-a-stop",
    kind="S",
    needs=("token_ids", "origin", "sample.turns", "sample.reward", "setup.stop_ids"),
    taints=("policy",),
    applies=lambda step: is_sampled(step) and step.setup.stop_ids != (),
    judge=judge,
    example=example,
    lookalikes=(silence_is_right, one_word),
)
