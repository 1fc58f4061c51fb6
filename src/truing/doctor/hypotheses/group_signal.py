"""Groups of equal reward: their cost, and what they have in common."""

import math
from collections import defaultdict
from collections.abc import Iterator

from pydantic import ValidationError

from truing.config import Recipe
from truing.doctor.hypotheses.hypothesis import Hypothesis, HypothesisState
from truing.doctor.hypotheses.run_history import RunHistory
from truing.doctor.hypotheses.test_cost import command, retrain_command

MOSTLY_EQUAL = 0.8
"""Of the groups of equal reward: then nearly all are right, or nearly all wrong."""

MOSTLY_TRUNCATED = 0.9
"""Of the rollouts: then their rewards are independent of the tasks."""


def unearned_parts(history: RunHistory) -> Iterator[Hypothesis]:
    """Yield whether rollouts earn the part of the reward with the largest weight, if it has several."""
    prefix = "reward_part/"
    names = {name for row in history.steps for name in row.metrics if name.startswith(prefix)}
    means = {name.removeprefix(prefix): history.last(name) for name in sorted(names)}
    if len(means) < 2 or not history.main_parts:
        return
    shown = ", ".join(f"{name} {mean:.3g}" for name, mean in means.items())
    unearned = " and ".join(history.unearned)
    yield Hypothesis(
        f"no rollout earns anything of {unearned or ' or '.join(history.main_parts)}",
        "found" if unearned else "ruled out",
        f"means of the last steps: {shown}"
        + "; the tasks are too hard, or this part is broken: check grades the demonstrations"
        * bool(unearned),
        command(history, "check", "--static") if unearned else "",
    )


def group_signal(history: RunHistory) -> Iterator[Hypothesis]:
    """Yield whether groups have a signal, and if not, the likely tasks or grader."""
    share = history.last("group/zero_variance_share")
    if math.isnan(share):
        return
    right, wrong = history.last("group/all_right_share"), history.last("group/all_wrong_share")
    reason = (
        f"{share:.0%} of groups have equal rewards ({right:.0%} all right, {wrong:.0%} all"
        f" wrong){_cost(history)}"
    )
    if share < 0.5:
        yield Hypothesis("groups have no signal", "ruled out", reason)
    elif (before := history.before("group/zero_variance_share")) < 0.5:
        yield Hypothesis(
            "groups have no signal", "ruled out", f"{reason}; {before:.0%} had before the reward fell"
        )
    elif right >= MOSTLY_EQUAL * share:
        name = "the tasks are solved" if history.reward_trend.learns else "tasks are too easy"
        yield from _no_signal(history, name, reason, share)
    elif wrong >= MOSTLY_EQUAL * share:
        yield from _all_wrong(history, reason, share, wrong)
    elif share - right - wrong >= share / 2:
        yield from _equal_rewards(history, reason, share - right - wrong)
    else:
        yield from _no_signal(history, "some tasks are too easy and the others too hard", reason, share)


def _cost(history: RunHistory) -> str:
    """Return the cost of groups of equal reward so far, as text."""
    spent = [(row, row.metrics.get("group/zero_variance_share", 0.0)) for row in history.steps]
    seconds = sum(sum(row.seconds.values()) * share for row, share in spent)
    tokens = sum(row.metrics.get("tokens/sampled", 0.0) * share for row, share in spent)
    return f"; their cost so far is {seconds / 60:.1f} minutes and {tokens:.0f} sampled tokens"


def _all_wrong(history: RunHistory, reason: str, share: float, wrong: float) -> Iterator[Hypothesis]:
    if history.last("truncated/share") >= MOSTLY_TRUNCATED:
        because = f"{history.last('truncated/share'):.0%} of rollouts are cut before their end"
        yield Hypothesis("tasks are too hard", "ruled out", f"{because}; {reason}")
    elif wrong > 0.9:
        yield Hypothesis(
            "tasks are too hard, or the verifier is dead",
            "open",
            f"{reason}; `truing check` shows what demonstrations earn",
            command(history, "check", "--static"),
            0.0,  # trains nothing
        )
    else:
        yield from _no_signal(history, "tasks are too hard", reason, share)


def _equal_rewards(history: RunHistory, reason: str, between: float) -> Iterator[Hypothesis]:
    """Yield groups tied at rewards that are neither right nor wrong: a grader that reads the task alone."""
    groups, differ = _tied_groups(history)
    texts = f"; in {differ} of {groups} of the last ones the answers differ" if groups else ""
    yield Hypothesis(
        "rollouts of a group have equal rewards for different answers",
        "found" if differ > groups / 2 else "open",
        f"{reason}; {between:.0%} are tied at a reward between{texts}",
        command(history, "check", "--static"),
        0.0,  # trains nothing
    )


def _tied_groups(history: RunHistory) -> tuple[int, int]:
    """Return the groups of the last steps with equal rewards, and those with different texts."""
    texts, rewards = defaultdict[str, set[str]](set), defaultdict[str, set[float]](set)
    for sample in history.samples:
        if not math.isnan(sample.reward):
            texts[sample.group_id].add(sample.text)
            rewards[sample.group_id].add(sample.reward)
    tied = [name for name, paid in rewards.items() if len(paid) == 1]
    return len(tied), sum(len(texts[name]) > 1 for name in tied)


def _no_signal(history: RunHistory, advice: str, reason: str, share: float) -> Iterator[Hypothesis]:
    state: HypothesisState = "found" if share >= MOSTLY_EQUAL else "open"
    resampled = (
        _may_resample(history) and share < 1
    )  # without any group of unequal rewards resampling finds none
    yield Hypothesis(
        f"groups have no signal: {advice}",
        state,
        f"{reason}; use other tasks{', or sample other groups in their place' * resampled}",
        retrain_command(history, "gates.equal_groups=resample") if resampled else "",
        changes=("gates.equal_groups=resample",) * resampled,
    )


def _may_resample(history: RunHistory) -> bool:
    """Return whether the recipe may leave out groups of equal reward, and does not yet."""
    try:
        gates = history.recipe.gates.model_copy(update={"equal_groups": "resample"})
        Recipe.model_validate(history.recipe.model_copy(update={"gates": gates}).model_dump())
    except ValidationError:
        return False
    return history.recipe.gates.equal_groups != "resample"
