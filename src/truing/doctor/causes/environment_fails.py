"""The environment, a tool or a judge fails.

Found: More than a tenth of the rollouts ended in an error, or in a log have no token, or more than half of
its tool calls failed.
Open: The same of a log whose reward rises, or a log has tools and no call.
Excluded: Fewer did.
"""

import math
from collections.abc import Iterator

from truing.doctor.causes.cause import Advice, Answer, Cause, State
from truing.doctor.causes.commands import check_recipe, train_again
from truing.doctor.causes.example import example_history, example_log, rising
from truing.doctor.causes.history import History
from truing.utils.format import with_count

MANY = 0.1
"""Of the rollouts."""

MOST = 0.5
"""Of the tool calls: some fail in a healthy run, and the policy sees why."""


def judge(history: History) -> Answer:
    """Return the share of rollouts or tool calls that failed."""
    failed = history.late("ended/error")
    answers = sorted(_of_log(history), key=lambda each: each.explains) if history.run is None else []
    if answers and (math.isnan(failed) or answers[-1].state != "ruled out"):
        return answers[-1]
    if math.isnan(failed):
        return Answer("cannot tell", "the record lacks ended/error")
    because = f"{failed:.0%} of rollouts failed"
    if failed <= MANY:
        return Answer("ruled out", because)
    errors = [each.error for each in history.samples if each.error]
    because += f", the last with: {errors[-1]:.120}" if errors else ""
    if history.run is not None and any("no result within" in error for error in errors):
        longer: dict[str, object] = {"episode.timeout": 10 * history.run.recipe.episode.timeout}
        fix = train_again(history, longer, "with a longer timeout")
        return Answer("found", because, failed, fix, "if rollouts end, the timeout was the cause")
    return Answer("found", because, failed, check_recipe(history))


def _of_log(history: History) -> Iterator[Answer]:
    """Yield what a log says of tool calls, and of rollouts without a token."""
    state: State = "open" if history.outcome.learns else "found"
    if (failed := history.late("tools/failed_share")) >= 0:
        because = f"{failed:.0%} of tool calls failed ({history.column('tools/failed_share')})"
        fix = Advice("call a tool as a rollout does, and read the error that it raises")
        outcomes = "if it answers, the policy writes calls that the tool cannot take"
        found = Answer(state, because, failed, fix, outcomes, "tool calls fail")
        yield found if failed > MOST else Answer("ruled out", because)
    calls = history.series("tools/calls_mean")
    if failed == 0 and calls and not any(calls):
        because = f"0 calls in all of {with_count(len(calls), 'step')} ({history.column('tools/calls_mean')})"
        fix = Advice("read some rollouts beside the tools that the prompt offers")
        outcomes = "if calls are written, they are not parsed; if none is, the prompt does not ask for them"
        yield Answer("open", because, 0.5, fix, outcomes, "no tool is called")
    if (aborted := history.late("ended/aborted")) >= 0:
        because = f"{aborted:.0%} of rollouts have no token ({history.column('ended/aborted')})"
        fix = Advice("read the sampler's log for why it aborts requests: timeouts, memory, preemption")
        outcomes = "if it aborts none, the policy stops at once"
        found = Answer(state, because, aborted, fix, outcomes, "rollouts are aborted")
        yield found if aborted > MANY else Answer("ruled out", because)


def _log(**metrics: float) -> History:
    return example_log(
        {name.replace("_", "/", 1): x for name, x in metrics.items()}, without=("ended/error",)
    )


CAUSE = Cause(
    title="the environment or a judge fails",
    stages=("policy", "rft"),
    judge=judge,
    found=(
        lambda: example_history({"ended/error": 0.4}),
        lambda: _log(tools_failed_share=0.95),
        lambda: _log(ended_aborted=0.7),
        lambda: _log(tools_calls_mean=0.0, tools_failed_share=0.0),
        lambda: example_log({"tools/failed_share": 0.9, "reward/mean": rising()}),
    ),
    excluded=(
        example_history,
        lambda: _log(tools_failed_share=0.2, ended_aborted=0.01),
    ),
)
