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
from typing import NamedTuple

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


class Measured(NamedTuple):
    """Turns, those with a stop alone, their rewards, and the entropy there."""

    turns: int
    empty: int
    earned: float  # mean reward of rollouts with such a turn
    best: float  # reward of the step
    entropy: float  # nats, of the sampling distribution at these places; NaN if not recorded
    raw_entropy: float  # nats, of the model's own output
    row: int  # the first with such a turn
    at: int


def measure(step: Step) -> Measured:
    """Count turns whose only token is a stop."""
    sampled_N = step.tokens["origin"] == Origin.SAMPLED
    stop_N = torch.isin(step.tokens["token_ids"], torch.tensor(step.setup.stop_ids or ()))
    turns, empty, earned = 0, list[tuple[int, int]](), dict[str, float]()
    for index, row, part in step.slices():
        for turn in row.turns:
            first = part.start + turn.start
            length = turn.end - turn.start
            if length < 1 or not sampled_N[first : first + length].any():
                continue
            turns += 1
            if length == 1 and stop_N[first]:
                empty.append((index, turn.start))
                earned[row.rollout_id] = row.reward
    rewards = [row.reward for row in step.samples if math.isfinite(row.reward)]
    paid = [reward for reward in earned.values() if math.isfinite(reward)]
    at = torch.tensor([step.starts[row] + place for row, place in empty], dtype=torch.int64)
    return Measured(
        turns,
        len(empty),
        math.fsum(paid) / len(paid) if paid else math.nan,
        max(rewards, default=math.nan),
        _mean(step, "entropy", at),
        _mean(step, "raw_entropy", at),
        *(empty[0] if empty else (0, 0)),
    )


def _mean(step: Step, name: str, at: torch.Tensor) -> float:
    """Return the mean of a stream over some tokens, NaN if unknown."""
    values = step.tokens[name][at] if name in step.tokens else torch.empty(0)
    return float(values[~values.isnan()].double().mean())


def judge(measured: Measured) -> Iterator[Claim]:
    """Claim empty answers that earn less than the best."""
    pays = measured.earned > 0 and measured.earned >= measured.best
    if measured.turns < ENOUGH or measured.empty < MOST * measured.turns or pays:
        return
    entropies = f"nats there: {measured.raw_entropy:.2g} of the model, {measured.entropy:.2g} of the sampler"
    yield Claim(
        Verdict.SUSPECT,
        f"{measured.empty} of {measured.turns} turns consist of a stop token alone",
        got="" if math.isnan(measured.entropy + measured.raw_entropy) else entropies,
        expected="answers",
        row=measured.row,
        start=measured.at,
        end=measured.at + 1,
        specificity=2,
    )


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
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(silence_is_right, one_word),
)
