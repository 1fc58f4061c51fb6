"""One part of the reward outweighs another.

Open: In a log the reward rises and one of its parts does not, which deviates at most a twentieth as much as
another part does. Or in a run that does not get better one part with many values makes nearly all of the
rewards' variance within groups, is not related to the others, and does not rise.
Excluded: Each part that is far smaller rises with the reward, or nearly all rollouts earn it.
"""

import random
import statistics
from collections.abc import Mapping
from dataclasses import replace

from truing.doctor.causes.cause import Advice, Answer, Cause
from truing.doctor.causes.commands import train_again
from truing.doctor.causes.example import STEPS, example_history, example_log, rising
from truing.doctor.causes.groups import rollouts_of
from truing.doctor.causes.history import PAID, History
from truing.metrics.aliases import PART

DEVIATION = "part_std/"

NEARLY_ALL = 0.9
"""Of the variance."""

VALUES = 16
"""Different values of a part: fewer are grades, whose deviation is no noise."""

RELATED = 0.3
"""The correlation with the rest of the reward, from which a part pays the same answers."""


def judge(history: History) -> Answer | None:
    """Return the deviations of the parts, and which of them do not rise."""
    if history.run is not None:
        return _of_run(history)
    known = {
        name: history.mean(f"{DEVIATION}{name}")
        for name in history.part_trends
        if history.has(f"{DEVIATION}{name}")
    }
    if len(known) < 2:
        return None
    because = "deviations of the parts: " + ", ".join(f"{name} {x:.3g}" for name, x in known.items())
    if not (stays := history.outweighed):
        return Answer("ruled out", because)
    ends = [f"{name} {each.first:.3g} → {each.last:.3g}" for name, each in stays.items()]
    because += f"; while the reward rises: {', '.join(ends)}"
    largest = max(known, key=lambda name: known[name])
    title = f"{largest} outweighs {' and '.join(stays)}"
    fix = train_again(history, {}, "with parts that deviate alike (weights, or another unit)")
    outcomes = f"if {' and '.join(stays)} rises then, it counted too little"
    return Answer("open", because, 0.5, fix, outcomes, title)


def _of_run(history: History) -> Answer | None:
    """Return how much each part, times its weight, deviates within groups."""
    apart = _within_groups(history)
    deviations = {name: statistics.pstdev(values) for name, values in apart.items()}
    if len(deviations) < 2 or history.outcome.learns:
        return None
    because = "with their weights the parts deviate within groups by "
    because += ", ".join(f"{name} {x:.3g}" for name, x in deviations.items())
    largest = max(deviations, key=lambda name: deviations[name])
    others = [sum(each) for each in zip(*(apart[name] for name in apart if name != largest), strict=True)]
    rest = statistics.pstdev(others)
    share = deviations[largest] ** 2 / (deviations[largest] ** 2 + rest**2) if deviations[largest] else 0.0
    trend = history.part_trends.get(largest)
    if share < NEARLY_ALL or rest < PAID or len(set(apart[largest])) < VALUES or (trend and trend.rises):
        return Answer("ruled out", because)
    related = statistics.correlation(apart[largest], others)
    because += (
        f": {largest} makes {share:.0%} of the variance, and its correlation with the rest is {related:.2f}"
    )
    if related >= RELATED:
        return Answer("ruled out", because)
    fix = Advice(f"train again with a smaller weight of {largest}, or with the mean of several of its grades")
    outcomes = f"if the rest of the reward rises, the noise of {largest} hid it"
    return Answer("open", because, share, fix, outcomes, f"{largest} outweighs the rest of the reward")


def _within_groups(history: History) -> dict[str, list[float]]:
    """Return each rollout's parts times their weights, less the mean of its group."""
    by_group: dict[str, list[Mapping[str, float]]] = {}
    weights = {name: weight for name, weight in history.facts.weights.items() if weight}
    for each in rollouts_of(history):
        if weights.keys() <= each.reward_parts.keys():
            by_group.setdefault(each.group_id, []).append(each.reward_parts)
    parts: dict[str, list[float]] = {name: [] for name in weights} if by_group else {}
    for name, weight in weights.items() if by_group else ():
        for members in by_group.values():
            mean = statistics.fmean(each[name] for each in members)
            parts[name] += [weight * (each[name] - mean) for each in members]
    return parts


def _run(noise: float) -> History:
    """Return a reward of a right answer, and of a judge of some deviation."""
    history = example_history()
    draws = random.Random(0)
    rows = [
        replace(each, reward_parts={"exact": each.reward, "judge": draws.gauss(0, noise)})
        for each in history.samples
    ]
    return replace(history, samples=rows, run=replace(history.facts, weights={"exact": 1.0, "judge": 1.0}))


def _log(small: float, **exact: list[float]) -> History:
    """Return a reward in characters, beside a right answer that pays up to 1."""
    length = [100 * x for x in rising(-3.0, -1.0)]
    parts = {f"{PART}length": length, f"{PART}exact": exact.get("means", [0.4, 0.42] * (STEPS // 2))}
    return example_log(
        {"reward/mean": length, f"{DEVIATION}length": 190.0, f"{DEVIATION}exact": small} | parts
    )


CAUSE = Cause(
    title="one part of the reward outweighs another",
    judge=judge,
    found=(lambda: _log(0.49), lambda: _run(3.0)),
    excluded=(
        lambda: _log(0.49, means=rising()),
        lambda: _log(40.0),
        lambda: _log(0.02),  # nearly all rollouts earn it
        lambda: _run(0.3),
    ),
)
