"""The rollouts of a group are the same.

Found: In most groups that are not solved all answers are the same text.
Open: In a log every advantage is 0 beside rewards that differ, or the entropy is below 0.02 nats per token
from the first record on and the reward does not rise.
Excluded: They differ in most.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import replace

from truing.analysis.intervals import REWARD_TOLERANCE
from truing.config import Recipe
from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.commands import larger_groups, train_again
from truing.doctor.causes.example import example_history, example_log
from truing.doctor.causes.groups import groups_of
from truing.doctor.causes.history import History
from truing.utils.format import with_count

MANY = 0.5
"""Of the groups."""

FEW = 4
"""Rollouts of a group: fewer are alike or all wrong by chance. Tokens to draw from: fewer are no draws."""

HALF = 0.5
"""Of the probability."""

CERTAIN, UNCERTAIN = 0.01, 0.1
"""Nats per token: below the first answers hardly differ; above the second many do."""

LOW = 0.02
"""Nats per token, below which a policy that is not yet trained samples hardly anything but one answer."""


ONLY_A_STOP = "LEN004"
"""The rule about turns that end before they say anything."""


def judge(history: History) -> Answer:
    """Return how many groups have one answer."""
    if history.run is None and not history.samples:
        return _of_log(history)
    if history.suspects(ONLY_A_STOP):
        return Answer("cannot tell", f"turns are a stop alone, which is all that is sampled ({ONLY_A_STOP})")
    if history.run is not None and history.run.recipe.episode.force_rate > 0:
        return Answer("cannot tell", "turns begin with forced tokens (episode.force_rate)")
    entropy = history.late("entropy/sampled")
    if math.isnan(entropy):
        return Answer("cannot tell", "the record lacks entropy/sampled")
    nats = f"{entropy:.2g} nats per token"
    unsolved = [each for each in groups_of(history) if not (each.tied and max(each.rewards) >= 1)]
    if not unsolved:
        return _by_entropy(history, entropy)
    alike = sum(each.alike for each in unsolved)
    because = (
        f"in {alike} of the last {len(unsolved)} groups that are not solved the answers are the same; {nats}"
    )
    if alike < MANY * len(unsolved):
        return Answer("ruled out", because)
    if statistics.fmean(len(each.texts) for each in unsolved) < FEW:
        outcomes = (
            "if more rollouts of a task differ, groups are too small; if they do not, the policy is certain"
        )
        return Answer("open", because, alike / len(unsolved) / 2, larger_groups(history), outcomes)
    return Answer("found", because, alike / len(unsolved), _remedy(history))


def _of_log(history: History) -> Answer:
    """Return the same from advantages and entropy."""
    advantages, entropy = history.series("advantage/max_abs"), history.entropy
    if advantages and not any(advantages) and (differ := _rewards_differ(history)):
        because = f"every advantage is 0 in all of {with_count(len(advantages), 'step')}, and {differ}"
        outcomes = "if they are the same text, the sampler is greedy or draws with one seed; if they are not,"
        outcomes += " the reward does not depend on the answer, or the baseline is each reward itself"
        title = "every advantage is 0: the rollouts of a group earn the same"
        return Answer("open", because, 1.0, Advice("read the answers of one group"), outcomes, title)
    if not entropy:
        return Answer("cannot tell", "the record lacks entropy")
    first, last = (statistics.fmean(part) for part in (entropy[:FEW], entropy[-FEW:]))
    because = f"the entropy is {first:.2g} nats per token in the first records, and {last:.2g} in the last"
    if max(first, last) >= LOW or history.trend.rises:
        return Answer("ruled out", because)
    if (tied := history.late("group/zero_variance_share")) >= 0:
        because += f"; {tied:.0%} of groups have equal rewards, at a mean reward of"
        because += f" {history.late('reward/mean'):.3g}"
    outcomes = "if they are the same, raise the temperature of the sampler, or look for a greedy one"
    return Answer("open", because, 1.0, Advice("read the answers of one group"), outcomes)


def _rewards_differ(history: History) -> str:
    """Return how single rewards of a step differ, as text; "" if they do not, or if it is unknown."""
    low, high = history.late("reward/min"), history.late("reward/max")
    if high - low > REWARD_TOLERANCE:
        return f"rewards are from {low:.3g} to {high:.3g}"
    spread = max(history.series("reward/std"), default=0.0)
    return f"rewards deviate by {spread:.3g}" if spread > REWARD_TOLERANCE else ""


def _by_entropy(history: History, entropy: float) -> Answer:
    """Return the same from the entropy alone."""
    because = f"the entropy is {entropy:.2g} nats per token"
    if entropy > UNCERTAIN:
        return Answer("ruled out", because)
    outcomes = "if they are the same, raise the temperature, or train fewer steps on demonstrations"
    share = 1.0 if entropy < CERTAIN else 0.5
    return Answer("open", because, share, Advice("read the answers of one group"), outcomes)


def _remedy(history: History) -> Advice:
    if history.run is None:
        return Advice(
            "train again at a higher temperature, or from an earlier checkpoint of the demonstrations"
        )
    recipe = history.run.recipe
    if narrow := narrowed(recipe):
        return train_again(history, narrow, "from the whole distribution")
    if recipe.sampling.temperature < 1:
        return train_again(history, {"sampling.temperature": 1.0}, "at temperature 1")
    if recipe.sft is not None and "sft" in recipe.stages:
        return train_again(
            history, {"sft.steps": max(1, recipe.sft.steps // 2)}, "after fewer demonstrations"
        )
    return train_again(history, {"sampling.temperature": 1.2}, "at a higher temperature")


def narrowed(recipe: Recipe) -> Mapping[str, object]:
    """Return the keys that leave few tokens to draw from, with values that leave all."""
    sampling = recipe.sampling
    return (
        ({"sampling.top_k": 0} if 0 < sampling.top_k <= FEW else {})
        | ({"sampling.top_p": 1.0} if sampling.top_p < HALF else {})
        | ({"sampling.min_p": 0.0} if sampling.min_p > HALF else {})
    )


def certain() -> History:
    """Each task has one answer, which is wrong."""
    history = example_history({"entropy/sampled": 1e-3}, {"sampling.temperature": 0.1})
    rows = [replace(each, text=each.task_id, reward=0.0) for each in history.samples]
    return replace(history, samples=rows)


CAUSE = Cause(
    title="the rollouts of a group are the same",
    judge=judge,
    tier=1,
    rules=("LEN002", "LEN006", "ADV004"),
    found=(
        certain,
        lambda: example_log({"entropy/sampled": 0.011, "group/zero_variance_share": 0.9}),
        lambda: example_log({"advantage/max_abs": 0.0, "reward/min": 0.0, "reward/max": 1.0}),
    ),
    excluded=(example_history, example_log),
)
