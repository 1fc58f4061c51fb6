"""Checks of an environment: its rewards are meaningful and its episodes reproducible."""

import math
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from truing.checks.judged_rewards import REWARD_TOLERANCE, JudgedRewards
from truing.checks.result import NOT_DEMONSTRATED, CheckResult, Finding, check_result
from truing.checks.tools import failing_demonstrations
from truing.checks.trial_episodes import TrialEpisode, TrialRun, trial_samples
from truing.envs.base import MultiTurnEnv
from truing.types.status import Status

SHOWN_CHARS = 160
"""Characters of a value that a finding shows."""


def rollouts_end(trial: TrialRun) -> CheckResult:
    """Check that for any turns the environment replies, the episode ends and has a reward.

    To the calls of a demonstration it replies with results.
    """
    findings = []
    for episode in trial.episodes:
        if episode.error is not None:
            findings.append(Finding.from_error(episode.task.task_id, episode.error))
        elif any(rollout.status is Status.ERROR for rollout in episode.rollouts):
            findings.append(_crash_finding(episode))
    return check_result(len(trial.episodes), [*findings, *failing_demonstrations(trial)])


def empty_scores_less(trial: TrialRun) -> CheckResult:
    """Check that an empty answer does not get the full reward, except for tasks in ``env.idle``."""
    judged = JudgedRewards(trial)
    full = judged.full()
    idle = set(getattr(trial.context.env, "idle", ()))
    graded = [episode for episode in trial.empty if judged.parts(episode)]
    solved = [episode for episode in graded if judged.reward(episode) >= full - REWARD_TOLERANCE]
    findings = [
        Finding(
            episode.task.task_id,
            "an empty answer gets the full reward",
            f"{judged.reward(episode):g}",
            f"< {full:g}",
            "make the reward depend on the answer, or list the task in the environment's `idle`",
        )
        for episode in solved
        if episode.task.task_id not in idle
    ]
    idle_count = len(solved) - len(findings)
    findings = findings or list(_paid_like_demonstrations(trial, idle))
    notes = [f"tasks that env.idle lists as solved without any action: {idle_count}"] if idle_count else []
    return check_result(len(graded), findings, missing=judged.missing, notes=notes)


def _paid_like_demonstrations(trial: TrialRun, idle: Collection[str]) -> Iterator[Finding]:
    """Yield a finding if empty answers earn as much as demonstrations, all parts of the reward counted."""
    earned = {each.task.task_id: each.reward for each in trial.demonstrated if each.grades}
    paid = [
        each
        for each in trial.empty
        if each.grades and earned.get(each.task.task_id, 0.0) > 0 and each.task.task_id not in idle
    ]
    like = [each for each in paid if each.reward >= earned[each.task.task_id] - REWARD_TOLERANCE]
    if like:
        best = max(like, key=lambda each: each.reward - earned[each.task.task_id])
        yield Finding(
            best.task.task_id,
            f"an empty answer earns as much as the demonstration, in {len(like)} of {len(paid)} tasks",
            f"{best.reward:g} {best.grades[0].parts}",
            f"< {earned[best.task.task_id]:g}, which the demonstration earns",
            "lower the weight of the part that pays for it",
        )


def shuffled_score_less(trial: TrialRun) -> CheckResult:
    """Check that the demonstrations of other tasks of the family do not get the full reward on average."""
    judged = JudgedRewards(trial)
    full = judged.full()
    rewards_of: dict[str, list[float]] = defaultdict(list)
    for episode in trial.shuffled:
        if judged.parts(episode):
            rewards_of[episode.task.family].append(judged.reward(episode))
    findings = [
        Finding(
            family,
            "the answers of other tasks get the full reward",
            f"{_mean(rewards):g} on average over {len(rewards)} tasks",
            f"< {full:g}",
            "make the reward compare with the task's own answer",
        )
        for family, rewards in rewards_of.items()
        if _mean(rewards) >= full - REWARD_TOLERANCE
    ]
    untested = sorted({task.family for task in trial.tasks} - rewards_of.keys())
    untested_text = f"families without two different answers that ran: {', '.join(untested)}"
    missing = judged.missing or (untested_text if untested else "")
    best_family = max(rewards_of, key=lambda family: _mean(rewards_of[family]), default=None)
    notes = (
        []
        if best_family is None
        else [f"their reward is at most {_mean(rewards_of[best_family]):.3g} of {full:g}, in {best_family}"]
    )
    return check_result(sum(map(len, rewards_of.values())), findings, missing=missing, notes=notes)


def grading_agrees(trial: TrialRun) -> CheckResult:
    """Check that grading a rollout twice gives the same reward."""
    graded = [episode for episode in trial.episodes if episode.grades]
    findings = [
        Finding(
            episode.task.task_id,
            "grading one rollout twice gives two rewards",
            " and ".join(f"{reward.reward!r} {reward.parts}" for reward in episode.grades),
            "the same, to the last bit",
            "remove time, randomness and state from the reward; seed random numbers by the task",
        )
        for episode in graded
        if episode.grades[0] != episode.grades[1]
    ]
    return check_result(len(graded), findings)


def environments_agree(trial: TrialRun) -> CheckResult:
    """Check that a task opens equal episodes: the same turns get the same replies and the same outcome."""
    if not isinstance(trial.context.env, MultiTurnEnv):
        return check_result(0, (), missing="episodes: the environment has single turns only")
    opened_twice = [episode for episode in trial.episodes if episode.rollouts and not _failed(episode)]
    findings = []
    for episode in opened_twice:
        first, second = episode.rollouts
        if first.messages != second.messages:
            findings.append(_environments_differ(episode, "answers", first.messages, second.messages))
        elif first.outcome != second.outcome:
            findings.append(_environments_differ(episode, "outcome", first.outcome, second.outcome))
    return check_result(len(opened_twice), findings)


def prompts_fit(trial: TrialRun) -> CheckResult:
    """Check that the longest prompt and an answer fit in the context."""
    lengths = {episode.task.task_id: len(episode.rollout.turns[0].context_ids) for episode in trial.prompted}
    notes = [f"the longest prompt has {max(lengths.values())} tokens"] if lengths else []
    remedy = (
        "set episode.max_prompt_tokens, shorten the prompts, lower sampling.max_new_tokens, or use a model"
        " with a longer context"
    )
    return check_result(
        len(lengths),
        _too_long(lengths, _prompt_limit(trial), "prompts leave no room for an answer", remedy),
        notes=notes,
    )


def demonstrations_fit(trial: TrialRun) -> CheckResult:
    """Check that each demonstration fits: each turn could be sampled, and all of it fits into the context."""
    longest: dict[str, int] = defaultdict(int)
    shortest: dict[str, int] = defaultdict(lambda: sys.maxsize)
    before_last: dict[str, int] = defaultdict(int)
    for episode, sample in trial_samples(trial.demonstrated):
        name = episode.task.task_id
        lengths = [turn.end - turn.start for turn in sample.turns]
        longest[name], shortest[name] = max(longest[name], *lengths), min(shortest[name], *lengths)
        if len(episode.rollout.turns) > 1:  # else ``prompts_fit`` checks it
            before_last[name] = max(before_last[name], sample.turns[-1].start)
    turn_limit = trial.context.sampling_params.max_new_tokens, "sampling.max_new_tokens"
    truncated = [
        episode
        for episode in trial.demonstrated
        if episode.rollouts and episode.rollout.status is Status.TRUNCATED
    ]
    findings = [
        *_truncated_finding(truncated, len(trial.demonstrated)),
        *_too_long(
            longest, turn_limit, "demonstrations have a turn too long", "raise sampling.max_new_tokens"
        ),
        *_too_short(shortest, trial.context.sampling_params.min_new_tokens),
        *_too_long(
            before_last,
            _prompt_limit(trial),
            "demonstrations have no room for their last turn",
            "lower episode.max_reply_chars or sampling.max_new_tokens, or use a model with a longer context",
        ),
    ]
    return check_result(len(longest), findings, missing="" if trial.demonstrated else NOT_DEMONSTRATED)


def _truncated_finding(truncated: Sequence[TrialEpisode], count: int) -> Iterator[Finding]:
    """Yield one finding for all demonstrations that a limit of the episode truncates."""
    if truncated:
        first = truncated[0].rollout
        yield Finding(
            truncated[0].task.task_id,
            f"a limit truncates {len(truncated)} of {count} demonstrations; this is the first",
            f"ended by {first.ended_by} after {len(first.turns)} turns",
            "a last turn that ends the episode",
            "raise episode.max_turns or episode.time_limit, or shorten the demonstration",
        )


def _prompt_limit(trial: TrialRun) -> tuple[int, str]:
    """Return the longest allowed prompt (tokens), and its derivation as text."""
    context, answer = trial.context.context_length, trial.context.sampling_params.max_new_tokens
    return trial.context.sampling_params.max_prompt_length(
        context
    ), f"the model's context of {context} less sampling.max_new_tokens = {answer}"


def _too_long(
    lengths: Mapping[str, int], limit_and_name: tuple[int, str], description: str, remedy: str
) -> Iterator[Finding]:
    """Yield one finding for all tasks over the limit, at the longest of them."""
    limit, name = limit_and_name
    too_long = [task_id for task_id, length in lengths.items() if length > limit]
    if too_long:
        longest = max(too_long, key=lengths.__getitem__)
        what = f"{len(too_long)} of {len(lengths)} {description}; this is the longest"
        yield Finding(longest, what, f"{lengths[longest]} tokens", f"≤ {limit}: {name}", remedy)


def _too_short(lengths: Mapping[str, int], least: int) -> Iterator[Finding]:
    """Yield one finding for all tasks with a turn that ends while the stop is banned.

    Lengths count the stop.
    """
    too_short = [task_id for task_id, length in lengths.items() if length <= least]
    if too_short:
        shortest = min(too_short, key=lengths.__getitem__)
        yield Finding(
            shortest,
            f"{len(too_short)} of {len(lengths)} demonstrations have a turn that is too short to be sampled;"
            " this is the shortest",
            f"{lengths[shortest]} tokens with the stop",
            f"> {least}: sampling.min_new_tokens",
            "lower sampling.min_new_tokens: answers are filled up to it",
        )


def _crash_finding(episode: TrialEpisode) -> Finding:
    """Return the finding for a failed episode, with the last line and location of its traceback."""
    failed = next(rollout for rollout in episode.rollouts if rollout.status is Status.ERROR)
    error = failed.error
    if "calls" in failed.outcome:
        told, _, remedy = error.strip().rpartition("\n  remedy: ")
        return Finding(
            episode.task.task_id,
            "the program has no outcome",
            " · ".join(line.strip() for line in (told or remedy).splitlines()),
            "a program that calls the policy and ends well",
            remedy if told else "",
        )
    frames = re.findall(r'File "(.+)", line (\d+), in (\S+)', error)
    location = " ({}:{}, in {})".format(*frames[-1]) if frames else ""
    return Finding(
        episode.task.task_id,
        "the environment failed",
        error.strip().splitlines()[-1] + location,
        "a reply or an outcome",
        "raise ToolError for mistakes of the model, and fix the rest",
    )


def _environments_differ(episode: TrialEpisode, aspect: str, first: object, second: object) -> Finding:
    """Return the finding for two episodes of one task that differ."""
    return Finding(
        episode.task.task_id,
        f"the task opened two episodes that differ in their {aspect}",
        " and ".join(f"{part!r:.{SHOWN_CHARS}}" for part in _first_difference(first, second)),
        "equal episodes for one task",
        "make `open` derive everything from the task, and share nothing between episodes",
    )


def _first_difference(first: object, second: object) -> tuple[object, object]:
    """Return the innermost parts in which two values first differ."""
    if isinstance(first, Mapping) and isinstance(second, Mapping) and first.keys() == second.keys():
        pairs = [(first[key], second[key]) for key in first]
    elif isinstance(first, list | tuple) and isinstance(second, list | tuple) and len(first) == len(second):
        pairs = list(zip(first, second, strict=True))
    else:
        return first, second
    return next((_first_difference(a, b) for a, b in pairs if a != b), (first, second))


def _failed(episode: TrialEpisode) -> bool:
    """Whether the environment failed in either rollout."""
    return any(rollout.status is Status.ERROR for rollout in episode.rollouts)


def _mean(rewards: Sequence[float]) -> float:
    return math.fsum(rewards) / len(rewards)
