"""Checks of an environment: that its rewards say what they should, and that its worlds can be trusted."""

import math
from collections import defaultdict
from collections.abc import Sequence

from truing.check.finding import Checked, Finding, checked
from truing.check.trial import Play, Trial
from truing.envs.base import Agentic
from truing.rewards import Rewards
from truing.types import Status

CLOSE = 1e-9
"""Rewards that differ by less are the same: sums of weights round."""

NO_DEMONSTRATIONS = "demonstrations: no task has one"


def full_reward(rewards: Rewards) -> float:
    """What an attempt earns that has nothing to better: the sum of all weights above 0.

    Each part is taken to lie in [0, 1]; one with a weight below 0 is a penalty, and not to be had.
    """
    return math.fsum(weight for _, weight in rewards.values() if weight > 0)


def gold_scores_full(trial: Trial) -> Checked:
    """A demonstration, played in its own world, earns all that there is."""
    full = full_reward(trial.scene.env.rewards)
    findings = []
    for play in trial.gold:
        if play.error is not None:
            findings.append(Finding.of(play.task.task_id, play.error))
        elif not play.grades:
            findings.append(_crash(play, "the world failed while the demonstration was played"))
        elif play.reward < full - CLOSE:
            findings.append(_poor_gold(play, full))
    without = len(trial.tasks) - len(trial.gold)
    missing = NO_DEMONSTRATIONS
    if trial.gold:
        missing = f"demonstrations: {without} of {len(trial.tasks)} tasks have none" if without else ""
    return checked(len(trial.gold), findings, missing=missing)


def empty_scores_less(trial: Trial) -> Checked:
    """Saying nothing does not earn all, but for the tasks whose data lets it (``env.idle``)."""
    full = full_reward(trial.scene.env.rewards)
    idle = set(getattr(trial.scene.env, "idle", ()))
    findings, passed = [], 0
    for play in trial.empty:
        if play.error is not None:
            findings.append(Finding.of(play.task.task_id, play.error))
        elif not play.grades:
            findings.append(_crash(play, "the world failed while nothing was said"))
        elif play.reward >= full - CLOSE and play.task.task_id in idle:
            passed += 1
        elif play.reward >= full - CLOSE:
            findings.append(
                Finding(
                    play.task.task_id,
                    "saying nothing earns the full reward",
                    f"{play.reward:g}",
                    f"< {full:g}",
                    "make the reward look at the answer, or list the task in the environment's `idle`",
                )
            )
    notes = [f"tasks that doing nothing solves, as the data says: {passed}"] if passed else []
    return checked(len(trial.empty), findings, notes=notes)


def shuffled_score_less(trial: Trial) -> Checked:
    """What is right for another task of the family does not earn all, on average."""
    full = full_reward(trial.scene.env.rewards)
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
        if _mean(rewards) >= full - CLOSE
    ]
    alone = sorted({task.family for task in trial.tasks} - earned.keys())
    missing = f"families without two answers that can be played: {', '.join(alone)}" if alone else ""
    notes = [f"{family}: shuffled answers earn {_mean(each):.3g} of {full:g}" for family, each in earned.items()]
    return checked(sum(map(len, earned.values())), findings, missing=missing, notes=notes)


def grading_agrees(trial: Trial) -> Checked:
    """The same rollout earns the same at every grading."""
    graded = [play for play in trial.plays if play.grades]
    findings = [
        Finding(
            play.task.task_id,
            "grading one rollout twice gives two rewards",
            " and ".join(f"{total!r} {parts}" for total, parts in play.grades),
            "the same, to the last bit",
            "take time, randomness and state out of the reward; key random numbers by the task",
        )
        for play in graded
        if play.grades[0] != play.grades[1]
    ]
    return checked(len(graded), findings, missing="" if graded else "rollouts: none could be graded")


def worlds_agree(trial: Trial) -> Checked:
    """A task opens the same world every time: the same turns meet the same answers and the same end."""
    if not isinstance(trial.scene.env, Agentic):
        return checked(0, (), missing="worlds: the environment opens none")
    twins = [play for play in trial.plays if play.rollouts and not _failed(play)]
    findings = []
    for play in twins:
        first, second = ((rollout.messages, rollout.outcome) for rollout in play.rollouts)
        if first != second:
            at = next(i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)
            findings.append(
                Finding(
                    play.task.task_id,
                    f"the task opened two worlds that differ in their {('answers', 'outcome')[at]}",
                    f"{first[at]!r:.200} and {second[at]!r:.200}",
                    "one world for one task",
                    "make `open` derive everything from the task, and share nothing between episodes",
                )
            )
    return checked(len(twins), findings, missing="" if twins else "worlds: none could be played")


def prompts_fit(trial: Trial) -> Checked:
    """The longest prompt leaves room for an answer."""
    context, answer = trial.scene.context_length, trial.scene.contract.max_new_tokens
    lengths = {
        play.task.task_id: len(play.rollout.turns[0].context_ids)
        for play in trial.empty
        if play.rollouts and play.rollout.turns
    }
    if not lengths:
        return checked(0, (), missing="prompts: none could be rendered")
    longest = max(lengths, key=lengths.__getitem__)
    if lengths[longest] + answer <= context:
        return checked(len(lengths), (), notes=[f"the longest prompt has {lengths[longest]} tokens"])
    over = sum(length + answer > context for length in lengths.values())
    finding = Finding(
        longest,
        f"{over} of {len(lengths)} prompts leave no room for an answer; this is the longest",
        f"{lengths[longest]} tokens + sampling.max_new_tokens = {answer}",
        f"≤ {context}, the context of the model",
        "shorten the prompts, lower sampling.max_new_tokens, or take a model with a longer context",
    )
    return checked(len(lengths), [finding])


def _poor_gold(play: Play, full: float) -> Finding:
    """A demonstration that earns too little."""
    rollout = play.rollout
    ended = "" if rollout.status is Status.DONE else f", {rollout.status} by {rollout.ended_by}"
    return Finding(
        play.task.task_id,
        "the demonstration does not earn the full reward",
        f"{play.reward:g} {play.grades[0][1]}{ended}",
        f"{full:g}, the sum of the weights above 0",
        "mend the demonstration or the reward" if not ended else "raise the limit that cut it short",
    )


def _crash(play: Play, what: str) -> Finding:
    """A world that failed; of its traceback, the last line."""
    error = next(rollout.error for rollout in play.rollouts if rollout.status is Status.ERROR)
    return Finding(
        play.task.task_id,
        what,
        error.strip().splitlines()[-1],
        "an answer or an outcome",
        "raise ToolError for what the model did wrong, and mend the rest",
    )


def _failed(play: Play) -> bool:
    """Whether a world failed in either attempt."""
    return any(rollout.status is Status.ERROR for rollout in play.rollouts)


def _mean(rewards: Sequence[float]) -> float:
    return math.fsum(rewards) / len(rewards)
