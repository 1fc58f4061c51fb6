"""From a run to hypotheses: what its findings and curves leave open, and the cheapest test of each."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import tomli_w

from truing.config import PolicyStage
from truing.doctor.hypotheses.candidates import Hypothesis as Answer
from truing.doctor.hypotheses.explain import why
from truing.doctor.hypotheses.run_history import RunHistory
from truing.doctor.hypotheses.test_cost import check_minutes, training_minutes
from truing.doctor.rules import RULES
from truing.doctor.verdict import Verdict
from truing.lab.report.numbers import nan_to_none
from truing.lab.stats.e_process import min_pairs
from truing.lab.stats.power import MIN_POWER, information

FOUND, OPEN = 0.5, 0.2
"""How likely an answer of `truing why` is the cause: it was seen in the run, or it could not be ruled out."""

ERROR_SHARE = 0.05 / 7
"""What one of six hypotheses may get wrong: it sets the fewest pairs, and so the cost."""

DEFAULT_WITHIN = 0.15
"""What no pair of a suggested test is supposed to lose or gain more than, until somebody says otherwise."""

DEFAULT_SMALLEST_EFFECT = 0.05
"""The smallest effect that matters, until somebody says otherwise."""

RULE_ARMS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "ADV007": {"unscaled": ("grpo.advantage_scale=none",)},
    "LEN001": {"no-length-division": ("grpo.objective=dr_grpo",)},
    "LEN002": {"leashed": ("kl.coef=0.02", "kl.estimator=k2"), "warmer": ("entropy.coef=0.003",)},
    "RWD001": {"cut-left-out": ("gates.truncated=mask",)},
}
"""What a statistic would have one try: rule → arms. What is proven needs a mended line, and no arm."""


@dataclass(frozen=True)
class Suggestion:
    """A hypothesis that a run suggests."""

    title: str
    claim: str
    because: str  # what was seen
    probability: float
    arm: str = ""
    changes: tuple[str, ...] = ()  # that the arm makes
    rules: tuple[str, ...] = ()  # that settle it without training
    minutes: float = math.nan

    @property
    def information(self) -> float:
        """Bits that its test is expected to say."""
        return information(self.probability, *((1.0, 0.0) if self.rules else (MIN_POWER, ERROR_SHARE)))

    @property
    def score(self) -> float:
        """Probability × information per minute; what nobody can time comes last."""
        return self.probability * self.information / self.minutes if self.minutes > 0 else 0.0

    @property
    def test(self) -> str:
        """The cheapest test, in words."""
        if self.rules:
            return f"check {', '.join(self.rules)} on two updates"
        return f"{min_pairs(ERROR_SHARE, DEFAULT_WITHIN)} pairs or more with {' '.join(self.changes)}"

    def facts(self) -> dict[str, object]:
        """As JSON has it."""
        return nan_to_none(
            {**asdict(self), "information": self.information, "score": self.score, "test": self.test}
        )


def suggest(story: RunHistory) -> list[Suggestion]:
    """Hypotheses about a run, most information per minute first."""
    found = [each for answer in why(story) for each in _from_explanation(story, answer)]
    found += list(_from_curves(story))
    unique = {each.title: each for each in reversed(found)}
    return sorted(unique.values(), key=lambda each: -each.score)


def _from_explanation(story: RunHistory, answer: Answer) -> Iterator[Suggestion]:
    """What an answer of `truing why` suggests."""
    if answer.state == "ruled out":
        return
    likely = FOUND if answer.state == "found" else OPEN
    if answer.code:
        yield from _from_rule(story, answer, likely)
    elif answer.changes:
        name = answer.name.removeprefix("groups have no signal: ")
        title = name[0].upper() + name[1:]
        yield _arm_suggestion(story, title, answer.because, likely, "changed", answer.changes)


def _from_rule(story: RunHistory, answer: Answer, likely: float) -> Iterator[Suggestion]:
    """A fault that is proven is settled by its rule; a statistic by its rule's arms, where it has any."""
    rule = RULES[answer.code]
    if rule.kind in "ECM":
        title = f"{rule.code}: {rule.title.rstrip('.')}"
        sure = 0.99 if answer.name.startswith(str(Verdict.PROVEN)) else likely
        minutes = check_minutes(story)
        cost = math.nan if minutes is None else minutes
        yield Suggestion(title, rule.title, answer.because, sure, rules=(rule.code,), minutes=cost)
    for name, changes in RULE_ARMS.get(rule.code, {}).items():
        title = f"{rule.title.rstrip('.')}: {name}"
        yield _arm_suggestion(story, title, answer.because, likely, name, changes)


def _from_curves(story: RunHistory) -> Iterator[Suggestion]:
    """What the course of the stage suggests."""
    stage = story.recipe.stage(story.stage)
    rewards = story.series("reward/mean")
    quarter = len(rewards) // 4
    if quarter and isinstance(stage, PolicyStage):
        best = max(_moving_means(rewards, quarter))
        last = math.fsum(rewards[-quarter:]) / quarter
        spread = story.last("reward/std") / math.sqrt(stage.prompts_per_step * stage.group_size * quarter)
        if best - last > 4 * spread:
            changes = (f"{story.stage}.learning_rate={stage.learning_rate / 3:g}",)
            told = f"the reward was {best:.3f} over {quarter} updates, and {last:.3f} over the last {quarter}"
            yield _arm_suggestion(story, "Updates undo what was learnt", told, FOUND, "slower", changes)
    distance = story.last("kl_all/k3")
    if story.recipe.kl.coef > 0 and distance < 1e-3:
        weight = f"with kl.coef = {story.recipe.kl.coef:g}"
        told = f"{weight} the policy is {distance:.2g} nats a token from the reference"
        yield _arm_suggestion(story, "The KL term holds the policy", told, OPEN, "no-kl", ("kl.coef=0",))


def _moving_means(values: Sequence[float], window: int) -> list[float]:
    return [math.fsum(values[i : i + window]) / window for i in range(len(values) - window + 1)]


def _arm_suggestion(
    story: RunHistory, title: str, because: str, likely: float, arm: str, changes: tuple[str, ...]
) -> Suggestion:
    """A suggestion that training settles: the fewest pairs of the run and an arm."""
    one = training_minutes(story)
    minutes = math.nan if one is None else 2 * one * min_pairs(ERROR_SHARE, DEFAULT_WITHIN)
    claim = f"with {' '.join(changes)} the reward is higher"
    return Suggestion(title, claim, because, likely, arm, changes, minutes=minutes)


def header_text(suggestion: Suggestion) -> str:
    """The header of a hypothesis that was suggested."""
    minutes = f"about {suggestion.minutes:.0f} min" if math.isfinite(suggestion.minutes) else "unknown"
    table: dict[str, Any] = {
        "claim": suggestion.claim,
        "why": suggestion.because,
        "priority": "medium",
        "probability": suggestion.probability,
        "cost": minutes,
        "smallest_effect": DEFAULT_SMALLEST_EFFECT,
    }
    if suggestion.rules:
        table["check"] = {"rules": list(suggestion.rules), "settles": True}
    if suggestion.arm:
        about = {"metric": "eval/reward", "arm": suggestion.arm}
        table |= {"confirm": [about | {"above": 0.0}], "refute": [about | {"below": DEFAULT_SMALLEST_EFFECT}]}
        table |= {"seeds": 24, "within": {"eval/reward": DEFAULT_WITHIN}}
        table["arms"] = {suggestion.arm: list(suggestion.changes)}
    return tomli_w.dumps(table).strip()
