"""RWD010: The reward has fallen and stays down.

What: The mean reward of the last updates is far below the best that the stage had: by a quarter of its
height over a fifth of the stage, or by three fifths over its last few updates.

Why it is silent: The loss of a policy gradient says nothing of the reward, so it looks as before. Where all
attempts fail alike the gradient is 0, and the run ends in good order with a policy that is worth nothing.

How it is measured: Means over windows of 5, 10, 20 … updates and of a fifth of the stage, the last against
the best before it. The fall must be four standard errors of such a difference, by how much neighbouring
updates differ, or those of the best window where that is more. The update at which it broke is where two
levels fit best, and the lower is the mean since then. It is asked at each update, and told where it holds
at the last: a dip that was made good is none.

Healthy look-alikes: Noise of small batches; a dip during which the policy finds another way; rewards that
are rare. Tasks that get harder, or a penalty that sets in, look like a collapse: what the log does not say,
the rule cannot know.

Fix: Look at what moved before: KLD003 (the KL), LEN002 and LEN006 (the entropy), LEN003 (cut attempts). Go
back to a checkpoint from before the break, with a smaller learning rate, a KL term or a clip that holds.

References: https://arxiv.org/abs/2505.22617, https://arxiv.org/abs/2503.14476
"""

import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.example_steps import changed_step, example_step, past_step
from truing.doctor.hypotheses.levels import Fall, falls
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.rules.len001 import history
from truing.doctor.verdict import Claim, Verdict

ERRORS = 4.0
"""Standard errors: the best of many windows is two above their mean by chance alone."""

QUARTER = 0.25
"""Of the best height, lost over a fifth of the stage."""

MOST = 0.6
"""The same over fewer updates: a dip of a healthy run has cost a third."""


class Measured(NamedTuple):
    """Falls by the length of the window, the longest last, and the numbers of the updates."""

    falls: Sequence[Fall]
    updates: Sequence[int]  # from 1, of the values


def measure(step: Step) -> Measured:
    """The mean reward of every update that tells it."""
    numbers = [past.step for past in step.past_of_stage] + [step.step]
    told = [
        (number + 1, reward)
        for number, metrics in zip(numbers, history(step), strict=True)
        if math.isfinite(reward := metrics.get("reward/mean", math.nan))
    ]
    return Measured(falls([reward for _, reward in told]), [number for number, _ in told])


def fallen(found: Measured) -> Fall | None:
    """The fall over the longest window that shows one; None where none does."""
    for fall in reversed(found.falls):
        least = QUARTER if fall is found.falls[-1] else MOST
        if fall.errors >= ERRORS and fall.share >= least:
            return fall
    return None


def judge(found: Measured) -> Iterator[Claim]:
    """What is far enough, and surely."""
    if (fall := fallen(found)) is not None:
        first, last = found.updates[fall.start], found.updates[fall.start + fall.window - 1]
        yield Claim(
            Verdict.SUSPECT,
            f"the mean reward fell from {fall.best:.3g} to {fall.since:.3g}; it broke at update"
            f" {found.updates[fall.broke]}",
            got=f"{fall.now:.3g} over updates {found.updates[-fall.window]} to {found.updates[-1]}",
            expected=f"about {fall.best:.3g}, as over updates {first} to {last}",
            specificity=1.5,
        )


def _rewards(*levels: tuple[int, float], spread: float = 0.06) -> Step:
    """A stage that stayed for so many updates at each level."""
    rng = random.Random(0)
    values = [level + rng.gauss(0, spread) for count, level in levels for _ in range(count)]
    told = [past_step(number, reward_mean=value) for number, value in enumerate(values[:-1])]
    return changed_step(example_step(), past=told, numbers={"reward/mean": values[-1]})


def example() -> Step:
    """It learned, and then it answered nonsense."""
    return _rewards((10, 0.3), (20, 0.6), (12, 0.0))


def dip() -> Step:
    """It lost a third for a while, and found back."""
    return _rewards((20, 0.9), (5, 0.6), (15, 0.9))


def scattered() -> Step:
    """Two attempts an update, so that single rewards are 0 or 1."""
    rng = random.Random(1)
    values = [float(rng.random() < 0.5) for _ in range(60)]
    told = [past_step(number, reward_mean=value) for number, value in enumerate(values[:-1])]
    return changed_step(example_step(), past=told, numbers={"reward/mean": values[-1]})


RULE = Rule(
    code="RWD010",
    name="reward-fell",
    kind="S",
    needs=("numbers.reward/mean",),
    taints=("policy",),
    applies=is_sampled,
    judges_trend=True,
    measure=measure,
    judge=judge,
    example=example,
    lookalikes=(dip, scattered),
)
