"""The part of the reward that checks judge: of those that do not only shape it, the one with most weight."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from truing.checks.result import NOT_DEMONSTRATED, CheckResult, Finding, check_result
from truing.checks.trial_episodes import TrialEpisode, TrialRun
from truing.envs.tools import is_error
from truing.types.reward_parts import main_parts
from truing.types.status import Status
from truing.utils.format import with_count

REWARD_TOLERANCE = 1e-9
"""Rewards that differ by less count as equal: sums of weights round."""

SHOWN_CHARS = 160
"""Characters of a reply that a finding shows."""

ALL_SHAPING = "parts of the reward: doctor.shaping names all that have a weight above 0"


class JudgedRewards:
    """The judged parts of the rewards of a trial's episodes.

    Others, such as a bonus for short answers, may have a maximum that no right answer earns.
    """

    def __init__(self, trial: TrialRun) -> None:
        self.trial, self.rewards = trial, trial.context.env.rewards

    def parts(self, episode: TrialEpisode) -> Mapping[str, float]:
        """Return the judged parts of an episode, not weighted; none if it is not graded."""
        every = episode.grades[0].parts if episode.grades else {}
        weights = {name: self.rewards[name][1] for name in every}
        return {name: every[name] for name in main_parts(weights, self.trial.shaping)}

    def reward(self, episode: TrialEpisode) -> float:
        """Return the weighted sum of the judged parts."""
        return math.fsum(self.rewards[name][1] * value for name, value in self.parts(episode).items())

    def full(self) -> float:
        """Return the most that a demonstration earns; if that is nothing, the sum of the judged weights."""
        earned = max((self.reward(each) for each in self.trial.demonstrated if self.parts(each)), default=0.0)
        weights = {name: weight for name, (_, weight) in self.rewards.items()}
        declared = math.fsum(weights[name] for name in main_parts(weights, self.trial.shaping))
        return earned if earned > 0 else declared

    @cached_property
    def missing(self) -> str:
        """Why nothing is judged, or ""."""
        graded = [each for each in self.trial.episodes if each.grades]
        return ALL_SHAPING if graded and not any(map(self.parts, graded)) else ""


def demonstration_scores_full(trial: TrialRun) -> CheckResult:
    """Check that each task's own demonstration earns the judged part of the reward in full."""
    judged = JudgedRewards(trial)
    graded = [episode for episode in trial.demonstrated if judged.parts(episode)]
    findings = [_low(episode, parts) for episode in graded if _earns_less(parts := judged.parts(episode))]
    findings += _unearned(judged, graded) if not findings else []
    undemonstrated = len(trial.tasks) - len(trial.demonstrated)
    none = with_count(undemonstrated, "task has none", "tasks have none")
    missing = f"demonstrations: {none}" if undemonstrated else ""
    missing = missing if trial.demonstrated else NOT_DEMONSTRATED
    return check_result(len(graded), findings, missing=judged.missing or missing, notes=_note(trial))


def _earns_less(parts: Mapping[str, float]) -> bool:
    """Return whether no judged part is earned in full; parts of one weight may exclude each other."""
    return max(parts.values()) < 1 - REWARD_TOLERANCE


def _low(episode: TrialEpisode, parts: Mapping[str, float]) -> Finding:
    """Return the finding for a demonstration that earns little of the judged parts, or nothing."""
    rollout, named = episode.rollout, _named(parts)
    ending = "" if rollout.status is Status.DONE else f", {rollout.status} by {rollout.ended_by}"
    errors = [m["content"] for m in rollout.messages if m["role"] == "tool" and is_error(m["content"])]
    answer = f"; a call of it was answered {errors[0]!r:.{SHOWN_CHARS}}" if errors else ""
    if max(parts.values()) <= REWARD_TOLERANCE:
        what = f"the demonstration earns nothing of {named}: to this reward a right answer is wrong"
        remedy = "call the reward on the demonstration, and fix the one that is wrong"
    else:
        what = f"the demonstration does not get the full reward of {named}"
        remedy = f"fix the demonstration or the reward; if it only shapes the reward: {_shaping(parts)}"
    remedy = "raise the limit that truncates it" if ending else remedy
    return Finding(
        episode.task.task_id,
        what,
        f"{episode.reward:g} {episode.grades[0].parts}{ending}{answer}",
        f"1 of {named}",
        "fix the rejected call" if errors else remedy,
    )


def _unearned(judged: JudgedRewards, graded: Sequence[TrialEpisode]) -> Iterator[Finding]:
    """Yield a finding for each of several judged parts that no demonstration earns.

    A part that is below 0 in any episode is a penalty.
    """
    names = dict.fromkeys(name for episode in graded for name in judged.parts(episode))
    for name in names:
        values = [parts[name] for each in graded if name in (parts := judged.parts(each))]
        penalty = any(judged.parts(each).get(name, 0.0) < 0 for each in judged.trial.episodes)
        if not penalty and max(values) <= REWARD_TOLERANCE:
            yield Finding(
                "all tasks",
                f"no demonstration earns anything of {_named([name])}",
                f"0 in {with_count(len(values), 'demonstration')}",
                "more than 0 in some",
                f"call the reward on a demonstration; if it is a penalty, or only shapes: {_shaping([name])}",
            )


def _named(parts: Mapping[str, float] | Sequence[str]) -> str:
    """Return the names of parts, and why they are judged."""
    names, plural = " and ".join(parts), "s" if len(parts) > 1 else ""
    return f"{names}, the part{plural} of the reward with the largest weight"


def _shaping(parts: Mapping[str, float] | Sequence[str]) -> str:
    return f"doctor.shaping = {list(parts)}".replace("'", '"')


def _note(trial: TrialRun) -> Iterator[str]:
    """Yield what the demonstrations earn of each part, if there are several."""
    graded = [episode.grades[0].parts for episode in trial.demonstrated if episode.grades]
    weights = {name: weight for name, (_, weight) in trial.context.env.rewards.items() if weight}
    earned = {name: [parts[name] for parts in graded if name in parts] for name in weights}
    texts = [
        f"{name} {math.fsum(values) / len(values):.3g} (weight {weights[name]:g}"
        + (", shaping)" if name in trial.shaping else ")")
        for name, values in earned.items()
        if values
    ]
    if len(texts) > 1:
        yield f"demonstrations earn, on average: {', '.join(texts)}"
