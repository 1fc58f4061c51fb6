"""Incidents in the rollouts of a step: failed rollouts, re-rendered earlier turns, time limits."""

from collections.abc import Iterator, Mapping

from truing.types.rollout import Rollout
from truing.types.status import EndedBy, Status

REPORTED_ONCE = ("restarts", "time_limit")
"""Kinds of which a run reports only the first incident."""


def incidents(rollouts: Mapping[str, Rollout]) -> Iterator[tuple[str, str]]:
    """Yield a kind and a sentence for each incident."""
    for name, rollout in rollouts.items():
        if rollout.status is Status.ERROR:
            yield "failed", f"{name} has no reward and is not trained on: {rollout.error}"
        restarts = [turn.restart_reason for turn in rollout.turns if turn.restart_reason]
        if restarts:
            reason = f"the chat template re-renders earlier turns, {restarts[0]} (`truing explain agents`)"
            yield "restarts", f"{name}: {reason}"
        if rollout.ended_by is EndedBy.TIME:
            yield "time_limit", f"episode.time_limit truncated {name}: this run is not reproducible"
