"""RWD010: The reward has fallen and stays low.

What: The mean reward of the last steps is far below the best of the stage: by a quarter of its height
over a fifth of the stage, or by three fifths over its last few steps.

Why it is silent: The loss of a policy gradient is independent of the reward, so it looks as before. If all
rollouts fail alike the gradient is 0, and the run ends normally with a useless policy.

How it is measured: Means over windows of 5, 10, 20 … steps and of a fifth of the stage, the last against
the best before it. The fall must be four standard errors of such a difference, from differences of
neighbouring steps, or from the best window if that is larger. The break is the step with the best fit
of two levels, and the lower level is the mean since then; a fall from the first steps on that a line fits
better has no break. The rule checks each step, and reports a fall that holds at the last: a dip with a
recovery is none.

Healthy look-alikes: Noise of small batches. A dip during which the policy changes its strategy. Rare
rewards. Harder tasks, or a new penalty, look like a collapse: the rule cannot see causes outside the log.

Fix: Check what moved before: KLD003 (the KL), LEN002 and LEN006 (the entropy), LEN003 (cut rollouts).
Return to a checkpoint from before the break, with a smaller learning rate, a KL term or a tighter clip.

References: https://arxiv.org/abs/2505.22617, https://arxiv.org/abs/2503.14476
"""

import random
from collections.abc import Iterator, Sequence

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.levels import MIN_WINDOW, Fall, falls
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict

ERRORS = 4.0
"""Standard errors: the best of many windows is two above their mean by chance alone."""

QUARTER = 0.25
"""Of the best height, lost over a fifth of the stage."""

MOST = 0.6
"""The same over fewer steps: the dip of a healthy run costs a third."""


def fallen(every: Sequence[Fall]) -> Fall | None:
    """Return the fall over the longest window that shows one, of falls with the longest last; or None."""
    for fall in reversed(every):
        least = QUARTER if fall is every[-1] else MOST
        if fall.errors >= ERRORS and fall.share >= least:
            return fall
    return None


def judge(step: Step) -> Iterator[Claim]:
    """Claim a large and significant fall."""
    rewards = step.known("reward/mean")
    every, numbers = falls([*rewards.values()]), [*rewards]
    if not every:
        yield Claim(Verdict.NOT_CHECKED, f"{2 * MIN_WINDOW} steps with the mean reward")
    if (fall := fallen(every)) is not None:
        first, last = numbers[fall.start], numbers[fall.start + fall.window - 1]
        yield Claim(
            Verdict.SUSPECT,
            f"the mean reward fell {fall_text(fall, numbers)}",
            got=f"{fall.now:.3g} over steps {numbers[-fall.window]} to {numbers[-1]}",
            expected=f"about {fall.best:.3g}, as over steps {first} to {last}",
            specificity=1.5,
        )


def fall_text(fall: Fall, numbers: Sequence[int]) -> str:
    """Return from where to where, and when; ``numbers`` are those of the steps."""
    if fall.steady:
        return f"steadily from {fall.best:.3g} to {fall.now:.3g}, from the first steps on"
    return f"from {fall.best:.3g} to {fall.since:.3g}; it broke at step {numbers[fall.broke]}"


def _rewards(*levels: tuple[int, float], spread: float = 0.06) -> Step:
    """Return a stage with this many steps at each level."""
    rng = random.Random(0)
    values = [level + rng.gauss(0, spread) for count, level in levels for _ in range(count)]
    past = [past_step(number, reward_mean=value) for number, value in enumerate(values[:-1])]
    return changed_step(example_step(), past=past, metrics={"reward/mean": values[-1]})


def example() -> Step:
    """The policy learns, and then gives nonsense answers."""
    return _rewards((10, 0.3), (20, 0.6), (12, 0.0))


def dip() -> Step:
    """The reward loses a third for a while, and recovers."""
    return _rewards((20, 0.9), (5, 0.6), (15, 0.9))


def scattered() -> Step:
    """Two rollouts a step, so that single rewards are 0 or 1."""
    rng = random.Random(1)
    values = [float(rng.random() < 0.5) for _ in range(60)]
    past = [past_step(number, reward_mean=value) for number, value in enumerate(values[:-1])]
    return changed_step(example_step(), past=past, metrics={"reward/mean": values[-1]})


RULE = Rule(
    code="RWD010",
    name="reward-fell",
    kind="S",
    needs=("metrics.reward/mean",),
    taints=("policy",),
    applies=is_sampled,
    judges_trend=True,
    judge=judge,
    example=example,
    lookalikes=(dip, scattered),
)
