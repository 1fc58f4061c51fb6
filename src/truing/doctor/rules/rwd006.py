"""RWD006: Every rollout has the same reward.

What: For three steps in a row, every reward was the same number. Or no rollout of a stage has ever earned
anything of the part of the reward with the largest weight, and the other parts differ.

Why it is silent: With equal rewards every advantage is 0, and so are loss and gradient. The run continues,
and learns nothing. If only the main part is always 0, the reward may rise all the same: the policy learns the
other parts, such as a bonus for short answers. Tasks that are too hard, tasks that are too easy and a broken
grader look alike.

How it is measured: The rewards of this step, and mean and deviation of the rewards in the two before it.
For a log of scalars, mean and deviation alone. The part with the largest weight, of those that
`doctor.shaping` does not name, in eight steps or more of the stage, all of them.

Healthy look-alikes: A single step without signal. Groups of equal reward, some right and some wrong: then
the grader distinguishes them.

Fix: Grade the demonstrations: if they do not earn more than the policy's answers, the grader is broken. If
they do, the tasks are too hard or too easy for this policy: choose others, or fine-tune on some
demonstrations first.

References: https://arxiv.org/abs/2503.14476, docs/check.md
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from truing.doctor.evidence import Step, changed_step
from truing.doctor.example_steps import example_step, past_step
from truing.doctor.rule import Rule, is_sampled
from truing.doctor.verdict import Claim, Verdict
from truing.types.reward_parts import main_parts
from truing.types.step_table import StepNumbers

STEPS = 3
"""Steps in a row."""

PART_STEPS = 8
"""Steps of a stage in which no rollout earned anything of a part."""

ROUNDING = 1e-6
"""Reward units: rounding in the mean of equal numbers."""


def unearned_parts(step: Step) -> tuple[str, ...]:
    """Return the parts with the largest weight of which no rollout of the stage has earned anything."""
    weights, parts = step.setup.reward_weights or {}, [row.reward_parts for row in step.samples]
    return tuple(
        name
        for name in main_parts(weights, step.setup.shaping)
        if any(name in each for each in parts)
        and all(each.get(name, 0.0) == 0 for each in parts)
        and all(past.metrics.get(f"reward_part/{name}") == 0 for past in step.past_of_stage)
    )


def judge(step: Step) -> Iterator[Claim]:
    """Claim equal rewards in several steps, or a main part that no rollout of the stage earns."""
    rewards = [row.reward for row in step.samples if math.isfinite(row.reward)]
    mean = math.fsum(rewards) / len(rewards) if rewards else step.metrics.get("reward/mean", math.nan)
    count, parts = len(step.past_of_stage) + 1, unearned_parts(step)
    if _are_alike(step, rewards, mean):
        guess = "all wrong" if mean <= 0 else "all right" if mean >= 1 else "all alike"
        unscored = sum(math.isnan(row.reward) for row in step.samples) if rewards else 0
        yield Claim(
            Verdict.CANNOT_TELL,
            f"every reward of the last {STEPS} steps is {mean:.4g}: the tasks are too hard or"
            " too easy, or the grader is broken",
            got=guess + f"; {unscored} samples of this step have no reward" * (unscored > 0),
            expected="rewards that differ",
            remedy=_remedy(mean),
        )
    elif parts and count >= PART_STEPS:
        named = " and ".join(parts)
        yield Claim(
            Verdict.CANNOT_TELL,
            f"no rollout of the stage's {count} steps earned anything of {named}, the part of"
            " the reward with the largest weight: the policy learns the other parts",
            got=f"{named} is 0",
            expected="rollouts that earn it",
            remedy="grade right answers, which must earn it (`truing check RECIPE`: the demonstrations); if"
            " it only shapes the reward, name it in a recipe's doctor.shaping",
        )


def _are_alike(step: Step, rewards: Sequence[float], mean: float) -> bool:
    """Return whether several rollouts of this step and of those before all have the same reward."""
    spread = max(rewards) - min(rewards) if rewards else step.metrics.get("reward/std", math.nan)
    scored = {row.rollout_id for row in step.samples if math.isfinite(row.reward)}
    # a deviation implies several rollouts
    several = len(scored) > 1 or (not rewards and "reward/std" in step.metrics)
    earlier = [past.metrics for past in step.past_of_stage[1 - STEPS :]]
    means = [*(numbers.get("reward/mean", math.nan) for numbers in earlier), mean]
    spreads = [*(numbers.get("reward/std", math.nan) for numbers in earlier), spread]
    alike = all(spread <= ROUNDING for spread in spreads) and max(means) - min(means) <= ROUNDING
    return len(means) == STEPS and several and alike


def _remedy(reward: float) -> str:
    """Return how to tell a grader that is broken from tasks that are too hard or too easy."""
    if reward >= 1:
        return (
            "grade an empty and a wrong answer, which must earn less than this (`truing check RECIPE` does);"
            " then choose harder tasks"
        )
    return "grade right answers, which must earn more than this (`truing check RECIPE`: the demonstrations)"


def alike(reward: float, spreads: tuple[float, float]) -> Step:
    """Return a step of equal rewards after two with this mean."""
    past = [past_step(i, reward_mean=reward, reward_std=spread) for i, spread in enumerate(spreads)]
    return changed_step(example_step(rewards=(reward,) * 8), past=past)


def example() -> Step:
    """No rollout has earned a reward yet."""
    return alike(0.0, (0.0, 0.0))


def once() -> Step:
    """One step has no signal."""
    return alike(0.0, (0.3, 0.2))


def bonus_alone(weights: Mapping[str, float], shaping: tuple[str, ...] = (), earned: float = 0.0) -> Step:
    """Return steps in which answers earn a bonus, and on average ``earned`` of the part exact."""
    numbers = {"reward/mean": 0.05, "reward/std": 0.03, "reward_part/exact": earned}
    past = [StepNumbers("grpo", i, numbers, {}) for i in range(PART_STEPS - 1)]
    setup = {"reward_weights": weights, "shaping": shaping}
    step = changed_step(example_step(rewards=BONUSES, setup=setup), past=past)
    parts = [{"exact": 0.0, "length": bonus / 0.1} for bonus in BONUSES]
    return changed_step(step, samples={i: {"reward_parts": each} for i, each in enumerate(parts)})


BONUSES = (0.01, 0.1, 0.05, 0.02, 0.1, 0.1, 0.03, 0.04)


def hard_at_first() -> Step:
    """A right answer is rare, and the step has none."""
    return bonus_alone({"exact": 1.0, "length": 0.1}, earned=1 / 64)


def shaping_alone() -> Step:
    """The part that is always 0 is declared to shape the reward only."""
    return bonus_alone({"exact": 1.0, "length": 0.1}, shaping=("exact",))


RULE = Rule(
    code="RWD006",
    name="every-reward-equal",
    kind="S",
    needs=("sample.reward | metrics.reward/std",),
    taints=("rewards",),
    applies=is_sampled,
    judge=judge,
    example=example,
    lookalikes=(once, hard_at_first, shaping_alone),
)
