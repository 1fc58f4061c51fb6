"""Incidents in the rollouts of a step: failed rollouts, re-rendered earlier turns, time limits."""

from collections.abc import Iterator, Mapping

from truing.types.rollout import Rollout
from truing.types.status import EndedBy, Status

REPORTED_ONCE = ("restarts", "time_limit", "conversations", "untrained", "overridden", "refused")
"""Kinds of which a run reports only the first incident."""


def incidents(rollouts: Mapping[str, Rollout]) -> Iterator[tuple[str, str]]:
    """Yield a kind and a sentence for each incident."""
    for name, rollout in rollouts.items():
        if rollout.status is Status.ERROR:
            yield "failed", f"{name} has no reward and is not trained on: {rollout.error}"
        yield from _restarts(name, rollout)
        if rollout.ended_by is EndedBy.TIME:
            yield "time_limit", f"episode.time_limit truncated {name}: this run is not reproducible"


def _restarts(name: str, rollout: Rollout) -> Iterator[tuple[str, str]]:
    """Yield why samples begin within a rollout: the template renders turns anew, or a program does."""
    notes = rollout.outcome.get("calls", ()) if rollout.turns[0].call else ()
    by_program = [note["restart"] for note in notes if "restart" in note]
    reasons = [turn.restart_reason for turn in rollout.turns if turn.restart_reason]
    by_template = [reason for reason in reasons if reason not in by_program]
    if by_template:
        reason = f"the chat template re-renders earlier turns, {by_template[0]} (`truing explain agents`)"
        yield "restarts", f"{name}: {reason}"
    if by_program:
        yield "conversations", f"{name}: {by_program[0]}: a new sample begins (`truing explain programs`)"
    untrained = [note["call"] for note in notes if "untrained" in note]
    if untrained:
        which = f"call {untrained[0]} is of another conversation than the first call, and is not trained"
        yield "untrained", f"{name}: {which} (env.train, `truing explain programs`)"
    overridden = [(note["call"], *note["overridden"]) for note in notes if "overridden" in note]
    if overridden:
        call, *options = overridden[0]
        yield "overridden", f"{name}: call {call} asks for {', '.join(options)}, and gets the recipe's"
    if refused := rollout.outcome.get("refused") if notes or rollout.error else None:
        yield "refused", f"{name}: a call was refused: {refused[0]}"
