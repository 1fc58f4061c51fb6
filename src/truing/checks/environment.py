"""Checks of an environment: that its rewards say what they should, and that its worlds can be trusted."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from truing.checks.result import NOT_DEMONSTRATED, CheckResult, Finding, check_result
from truing.checks.trial_episodes import TrialEpisode, TrialRun, trial_samples
from truing.envs.base import MultiTurnEnv
from truing.envs.tools import is_error
from truing.rewards import Rewards, reward_range
from truing.types.status import Status

SHOWN_CHARS = 160
"""Characters of a value that a finding shows."""

REWARD_TOLERANCE = 1e-9
"""Rewards that differ by less are the same: sums of weights round."""


def full_reward(rewards: Rewards) -> float:
    """What an attempt earns that has nothing to better."""
    return reward_range(rewards)[1]


def max_reward(trial: TrialRun) -> float:
    """The full reward, or what a demonstration earns above it: a part may be of any size."""
    return max(
        [full_reward(trial.context.env.rewards), *(play.reward for play in trial.demonstrated if play.grades)]
    )


def attempts_end(trial: TrialRun) -> CheckResult:
    """Whatever is said, the world answers, the episode ends, and a reward can be told."""
    findings = []
    for play in trial.episodes:
        if play.error is not None:
            findings.append(Finding.from_error(play.task.task_id, play.error))
        elif not play.grades:
            findings.append(_crash(play))
    return check_result(len(trial.episodes), findings)


def demonstration_scores_full(trial: TrialRun) -> CheckResult:
    """A demonstration, played in its own world, earns all that there is."""
    full = full_reward(trial.context.env.rewards)
    graded = [play for play in trial.demonstrated if play.grades]
    findings = [
        _demonstration_scores_low(play, full) for play in graded if play.reward < full - REWARD_TOLERANCE
    ]
    without = len(trial.tasks) - len(trial.demonstrated)
    return check_result(
        len(graded), findings, missing=f"demonstrations: {without} tasks have none" if without else ""
    )


def empty_scores_less(trial: TrialRun) -> CheckResult:
    """Saying nothing does not earn all, but for the tasks whose data lets it (``env.idle``)."""
    full = max_reward(trial)
    idle = set(getattr(trial.context.env, "idle", ()))
    graded = [play for play in trial.empty if play.grades]
    solved = [play for play in graded if play.reward >= full - REWARD_TOLERANCE]
    findings = [
        Finding(
            play.task.task_id,
            "saying nothing earns the full reward",
            f"{play.reward:g}",
            f"< {full:g}",
            "make the reward look at the answer, or list the task in the environment's `idle`",
        )
        for play in solved
        if play.task.task_id not in idle
    ]
    passed = len(solved) - len(findings)
    notes = [f"tasks that doing nothing solves, as the data says: {passed}"] if passed else []
    return check_result(len(graded), findings, notes=notes)


def shuffled_score_less(trial: TrialRun) -> CheckResult:
    """What is right for another task of the family does not earn all, on average."""
    full = max_reward(trial)
    earned: dict[str, list[float]] = defaultdict(list)
    for play in trial.shuffled:
        if play.grades:
            earned[play.task.family].append(play.reward)
    findings = [
        Finding(
            family,
            "the answers of other tasks earn the full reward",
            f"{_mean(rewards):g} on average over {len(rewards)} tasks",
            f"< {full:g}",
            "make the reward compare with the task's own answer",
        )
        for family, rewards in earned.items()
        if _mean(rewards) >= full - REWARD_TOLERANCE
    ]
    alone = sorted({task.family for task in trial.tasks} - earned.keys())
    missing = f"families without two answers that can be played: {', '.join(alone)}" if alone else ""
    most = max(earned, key=lambda family: _mean(earned[family]), default=None)
    notes = [] if most is None else [f"they earn at most {_mean(earned[most]):.3g} of {full:g}, in {most}"]
    return check_result(sum(map(len, earned.values())), findings, missing=missing, notes=notes)


def grading_agrees(trial: TrialRun) -> CheckResult:
    """The same rollout earns the same at every grading."""
    graded = [play for play in trial.episodes if play.grades]
    findings = [
        Finding(
            play.task.task_id,
            "grading one rollout twice gives two rewards",
            " and ".join(f"{each.reward!r} {each.parts}" for each in play.grades),
            "the same, to the last bit",
            "take time, randomness and state out of the reward; key random numbers by the task",
        )
        for play in graded
        if play.grades[0] != play.grades[1]
    ]
    return check_result(len(graded), findings)


def environments_agree(trial: TrialRun) -> CheckResult:
    """A task opens the same world every time: the same turns meet the same answers and the same end."""
    if not isinstance(trial.context.env, MultiTurnEnv):
        return check_result(0, (), missing="worlds: the environment opens none")
    twins = [play for play in trial.episodes if play.rollouts and not _failed(play)]
    findings = []
    for play in twins:
        first, second = play.rollouts
        if first.messages != second.messages:
            findings.append(_environments_differ(play, "answers", first.messages, second.messages))
        elif first.outcome != second.outcome:
            findings.append(_environments_differ(play, "outcome", first.outcome, second.outcome))
    return check_result(len(twins), findings)


def prompts_fit(trial: TrialRun) -> CheckResult:
    """The longest prompt leaves room for an answer."""
    lengths = {play.task.task_id: len(play.rollout.turns[0].context_ids) for play in trial.prompted}
    notes = [f"the longest prompt has {max(lengths.values())} tokens"] if lengths else []
    remedy = (
        "set episode.max_prompt_tokens, shorten the prompts, lower sampling.max_new_tokens, or take a model"
        " with a longer context"
    )
    return check_result(
        len(lengths),
        _too_long(lengths, _prompt_limit(trial), "prompts leave no room for an answer", remedy),
        notes=notes,
    )


def demonstrations_fit(trial: TrialRun) -> CheckResult:
    """The policy has room to say what is demonstrated: in each turn, and before the context is full."""
    longest: dict[str, int] = defaultdict(int)
    before_last: dict[str, int] = defaultdict(int)
    for play, sample in trial_samples(trial.demonstrated):
        name = play.task.task_id
        longest[name] = max(longest[name], *(turn.end - turn.start for turn in sample.turns))
        if len(play.rollout.turns) > 1:  # else it is the prompt that has to fit
            before_last[name] = max(before_last[name], sample.turns[-1].start)
    words = trial.context.sampling_params.max_new_tokens, "sampling.max_new_tokens"
    cut = [play for play in trial.demonstrated if play.rollouts and play.rollout.status is Status.TRUNCATED]
    findings = [
        *_cut_short(cut, len(trial.demonstrated)),
        *_too_long(longest, words, "demonstrations have a turn too long", "raise sampling.max_new_tokens"),
        *_too_long(
            before_last,
            _prompt_limit(trial),
            "demonstrations have no room for their last turn",
            "lower episode.max_reply_chars or sampling.max_new_tokens, or take a model with a longer context",
        ),
    ]
    return check_result(len(longest), findings, missing="" if trial.demonstrated else NOT_DEMONSTRATED)


def _cut_short(cut: Sequence[TrialEpisode], of: int) -> Iterator[Finding]:
    """One finding for all demonstrations that a limit of the episode ends too soon."""
    if cut:
        first = cut[0].rollout
        yield Finding(
            cut[0].task.task_id,
            f"{len(cut)} of {of} demonstrations do not come to their end; this is the first",
            f"ended by {first.ended_by} after {len(first.turns)} turns",
            "a last turn after which the world has nothing more to say",
            "raise episode.max_turns or episode.time_limit, or demonstrate fewer turns",
        )


def _prompt_limit(trial: TrialRun) -> tuple[int, str]:
    """How long a prompt may be, and how that comes about."""
    context, answer = trial.context.context_length, trial.context.sampling_params.max_new_tokens
    return trial.context.sampling_params.max_prompt_length(
        context
    ), f"the model's context of {context} less sampling.max_new_tokens = {answer}"


def _too_long(lengths: Mapping[str, int], room: tuple[int, str], what: str, remedy: str) -> Iterator[Finding]:
    """One finding for all that are too long, at the longest of them."""
    limit, name = room
    over = [task_id for task_id, length in lengths.items() if length > limit]
    if over:
        longest = max(over, key=lengths.__getitem__)
        told = f"{len(over)} of {len(lengths)} {what}; this is the longest"
        yield Finding(longest, told, f"{lengths[longest]} tokens", f"≤ {limit}: {name}", remedy)


def _demonstration_scores_low(play: TrialEpisode, full: float) -> Finding:
    """A demonstration that earns too little."""
    rollout = play.rollout
    ended = "" if rollout.status is Status.DONE else f", {rollout.status} by {rollout.ended_by}"
    refused = [m["content"] for m in rollout.messages if m["role"] == "tool" and is_error(m["content"])]
    told = f"; a call of it was answered {refused[0]!r:.{SHOWN_CHARS}}" if refused else ""
    remedy = "raise the limit that cut it short" if ended else "mend the demonstration or the reward"
    return Finding(
        play.task.task_id,
        "the demonstration does not earn the full reward",
        f"{play.reward:g} {play.grades[0].parts}{ended}{told}",
        f"{full:g}, the sum of the weights above 0",
        "mend the call that was refused" if refused else remedy,
    )


def _crash(play: TrialEpisode) -> Finding:
    """A world that failed; of its traceback, the last line and the last place."""
    error = next(rollout.error for rollout in play.rollouts if rollout.status is Status.ERROR)
    places = re.findall(r'File "(.+)", line (\d+), in (\S+)', error)
    place = " ({}:{}, in {})".format(*places[-1]) if places else ""
    return Finding(
        play.task.task_id,
        "the world failed",
        error.strip().splitlines()[-1] + place,
        "an answer or an outcome",
        "raise ToolError for what the model did wrong, and mend the rest",
    )


def _environments_differ(play: TrialEpisode, what: str, first: object, second: object) -> Finding:
    """Two worlds of one task that differ."""
    return Finding(
        play.task.task_id,
        f"the task opened two worlds that differ in their {what}",
        " and ".join(f"{part!r:.{SHOWN_CHARS}}" for part in _apart(first, second)),
        "one world for one task",
        "make `open` derive everything from the task, and share nothing between episodes",
    )


def _apart(first: object, second: object) -> tuple[object, object]:
    """The innermost parts at which two values first differ."""
    if isinstance(first, Mapping) and isinstance(second, Mapping) and first.keys() == second.keys():
        pairs = [(first[key], second[key]) for key in first]
    elif isinstance(first, list | tuple) and isinstance(second, list | tuple) and len(first) == len(second):
        pairs = list(zip(first, second, strict=True))
    else:
        return first, second
    return next((_apart(a, b) for a, b in pairs if a != b), (first, second))


def _failed(play: TrialEpisode) -> bool:
    """Whether a world failed in either attempt."""
    return any(rollout.status is Status.ERROR for rollout in play.rollouts)


def _mean(rewards: Sequence[float]) -> float:
    return math.fsum(rewards) / len(rewards)
