"""What a step's rollouts met with that somebody should hear of."""

from collections.abc import Iterator, Mapping

from truing.types.rollout import Rollout
from truing.types.status import EndedBy, Status

REPORTED_ONCE = ("restarts", "time_limit")
"""Incidents that are of one kind all along: a run tells the first of each."""


def incidents(rollouts: Mapping[str, Rollout]) -> Iterator[tuple[str, str]]:
    """A kind and a sentence for each incident: attempts that failed, a past written anew, a time limit."""
    for name, rollout in rollouts.items():
        if rollout.status is Status.ERROR:
            yield "failed", f"{name} has no reward and trains nothing: {rollout.error}"
        restarts = [turn.restart_reason for turn in rollout.turns if turn.restart_reason]
        if restarts:
            how = f"the chat template writes the past anew, {restarts[0]} (docs/agents.md)"
            yield "restarts", f"{name}: {how}"
        if rollout.ended_by is EndedBy.TIME:
            yield "time_limit", f"episode.time_limit cut {name}: this run cannot be made again exactly"
