"""Which formula the advantages of a step follow, found from rewards and groups alone."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from truing.doctor.evidence import Step
from truing.doctor.oracle.credit import GROUP_FORMULAS, group_advantage, mean, sample_std

ROUNDING = 2e-4
"""Of the largest advantage of a step: float32 keeps 1e-7 of it, bfloat16 rewards more."""

EPSILONS = (1e-4, 1e-6, 1e-8, 1e-5, 0.0)
"""Of the denominator, reward units: those of trainers, the most common first."""

TEXTS: Mapping[str, str] = {
    "group": "(reward − group mean) ÷ (sample deviation of the group{eps})",
    "group_population": "(reward − group mean) ÷ (population deviation of the group{eps})",
    "batch": "(reward − group mean) ÷ (deviation of all rewards{eps})",
    "none": "reward − group mean",
    "loo": "reward − mean of the others of the group",
    "loo_scaled": "(reward − mean of the others of the group) ÷ (their deviation{eps})",
    "reward": "the reward itself",
    "centred": "reward − mean of all rewards",
    "whitened": "(reward − mean of all rewards) ÷ (deviation of all rewards{eps})",
}
"""Formulas, as text."""

SCALED = ("group", "group_population", "batch", "loo_scaled", "whitened")

GROUPINGS = {
    "": "",
    "transposed": ", with groups across prompts: each group has one rollout of every prompt",
    "consecutive": ", with groups of consecutive rows, which are not those of the trace",
}


class Formula(NamedTuple):
    """A formula of advantages."""

    name: str
    eps: float = 0.0
    negated: bool = False
    grouping: str = ""

    @property
    def mistake(self) -> str:
        """Return the known mistake that it has, as text; "" if it may be meant."""
        said = ["the sign is the other one"] if self.negated else []
        return "; ".join([*said, *([GROUPINGS[self.grouping][2:]] if self.grouping else [])])

    def __str__(self) -> str:
        eps = f" + {self.eps:g}" if self.eps else ""
        sign = "minus " if self.negated else ""
        return sign + TEXTS[self.name].format(eps=eps) + GROUPINGS[self.grouping]


def formulas_of(step: Step) -> set[Formula] | None:
    """Return every formula that the advantages of a step follow; None if the step cannot tell any apart.

    A step tells nothing if all rewards are equal, or rows have an advantage for each token.
    """
    rows = _rows(step)
    if rows is None:
        return None
    rewards, advantages, groups = rows
    largest = max((abs(each) for each in advantages if not math.isnan(each)), default=0.0)
    if not largest:
        return None
    found = set[Formula]()
    for formula in _candidates(groups):
        expected = expected_advantages(formula, rewards, groups)
        apart = [abs(a - b) for a, b in zip(expected, advantages, strict=True) if not math.isnan(a - b)]
        known = sum(not math.isnan(each) for each in advantages)
        # where most rows have no value by a formula, what is left fits by chance
        if 2 * len(apart) >= known and max(apart) <= ROUNDING * max(largest, 1e-6):
            found.add(formula)
    return found


def _rows(step: Step) -> tuple[list[float], list[float], list[str]] | None:
    """Return rewards, advantages and groups of the rows; None if some are not known."""
    if step.missing(("advantage", "policy_mask", "sample.reward")):
        return None
    rewards, advantages, groups = list[float](), list[float](), list[str]()
    for _, row, part in step.slices():
        here = step.tokens["advantage"][part][step.tokens["policy_mask"][part]].double()
        here = here[~here.isnan()]
        if not math.isfinite(row.reward) or (len(here) and float(here.max() - here.min()) > 1e-6):
            return None
        rewards.append(row.reward)
        advantages.append(float(here[0]) if len(here) else math.nan)  # a row that is not trained has none
        groups.append(row.group_id)
    return (rewards, advantages, groups) if len(set(rewards)) > 1 else None


def _candidates(groups: Sequence[str]) -> Iterator[Formula]:
    """Yield formulas, those that may be meant first; groups are needed where they matter."""
    names = TEXTS if all(groups) else ("reward", "centred", "whitened")
    groupings = [each for each in GROUPINGS if not each or _regrouped(groups, each) is not None]
    for grouping in groupings:
        for negated in (False, True):
            for name in names:
                if grouping and name not in GROUP_FORMULAS:
                    continue
                for eps in EPSILONS if name in SCALED else (0.0,):
                    yield Formula(name, eps, negated, grouping)


def _regrouped(groups: Sequence[str], grouping: str) -> list[str] | None:
    """Return the groups that a mistake makes of equal groups; None if it would change nothing."""
    size, left = divmod(len(groups), max(1, len(set(groups))))
    if left or size < 2 or len(set(groups)) < 2 or not all(groups):
        return None
    if grouping == "transposed":
        seen: dict[str, int] = {}
        changed = []
        for name in groups:
            changed.append(str(seen.setdefault(name, 0)))
            seen[name] += 1
    else:
        changed = [str(i // size) for i in range(len(groups))]
    pairs = set(zip(groups, changed, strict=True))
    return None if len(pairs) == len(set(groups)) == len(set(changed)) else changed


def expected_advantages(formula: Formula, rewards: Sequence[float], groups: Sequence[str]) -> list[float]:
    """Return the advantage of each row by a formula."""
    sign = -1.0 if formula.negated else 1.0
    if formula.name in GROUP_FORMULAS:
        names = _regrouped(groups, formula.grouping) if formula.grouping else groups
        assert names is not None
        members: dict[str, list[float]] = {}
        for name, reward in zip(names, rewards, strict=True):
            members.setdefault(name, []).append(reward)
        return [
            sign * group_advantage(reward, members[name], rewards, formula.name, formula.eps)
            for name, reward in zip(names, rewards, strict=True)
        ]
    middle = 0.0 if formula.name == "reward" else mean(rewards)
    spread = sample_std(rewards) + formula.eps if formula.name == "whitened" else 1.0
    return [sign * (reward - middle) / spread for reward in rewards]
