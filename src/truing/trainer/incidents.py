"""Incidents in the rollouts of a step: failed rollouts, re-rendered earlier turns, time limits."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from truing.types.rollout import FIRST_CONVERSATION, Rollout
from truing.types.status import EndedBy, Status

REPORTED_ONCE = ("restarts", "time_limit", "conversations", "untrained", "overridden")
"""Kinds of which a run reports only the first incident."""

EXCEPTION = re.compile(r"^[\w.]*(?:Error|Exception|Exit)\b.*", re.MULTILINE)
"""The line of a traceback that says why."""


def incidents(rollouts: Mapping[str, Rollout]) -> Iterator[tuple[str, str]]:
    """Yield a kind and a sentence for each incident; of rollouts that failed, one for each cause."""
    yield from _failures(rollouts)
    for name, rollout in rollouts.items():
        notes = rollout.outcome.get("calls", ()) if any(turn.call for turn in rollout.turns) else ()
        by_program = [FIRST_CONVERSATION, *(note["restart"] for note in notes if "restart" in note)]
        for reason in (turn.restart_reason for turn in rollout.turns):
            if reason and reason not in by_program:
                why = f"the chat template re-renders earlier turns, {reason} (`truing explain agents`)"
                yield "restarts", f"{name}: {why}"
                break
        for kind, text in _of_program(notes):
            yield kind, f"{name}: {text}"
        if rollout.ended_by is EndedBy.TIME:
            yield "time_limit", f"episode.time_limit truncated {name}: this run is not reproducible"


def _failures(rollouts: Mapping[str, Rollout]) -> Iterator[tuple[str, str]]:
    """Yield a sentence for each cause of failed rollouts, with the error of the first of them."""
    by_cause: defaultdict[str, list[Rollout]] = defaultdict(list)
    for rollout in rollouts.values():
        if rollout.status is Status.ERROR:
            by_cause[_cause(rollout)].append(rollout)
    for failed in by_cause.values():
        what = f"{failed[0].rollout_id} has no reward and is not trained on"
        if len(failed) > 1:
            what = f"{len(failed)} rollouts have no reward and are not trained on; {failed[0].rollout_id}"
        yield "failed", f"{what}: {failed[0].error}"


def _cause(failed: Rollout) -> str:
    """Return what rollouts with one cause have in common: the exception, else what happened to which task."""
    exceptions = EXCEPTION.findall(failed.error)
    first = failed.error.strip().partition("\n")[0]
    return exceptions[-1] if exceptions else first.replace(repr(failed.task.task_id), "")


def _of_program(notes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield a kind and a sentence for what became of the calls of a program."""
    for note in notes:
        if "restart" in note:
            yield "conversations", f"{note['restart']}: a new sample begins (`truing explain programs`)"
        if "untrained" in note:
            which = f"call {note['call']} is of a conversation that env.train leaves out"
            yield "untrained", f"{which} (`truing explain programs`)"
        if "overridden" in note:
            options = ", ".join(note["overridden"])
            yield "overridden", f"call {note['call']} asks for {options}, and gets what the recipe declares"
