"""Calls of actors that end: each has a limit, and its error names the actor that did not answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayError, RayTaskError

from truing.errors import DistributedError, TruingError

ANSWER_SECONDS = 120.0
"""Seconds in which an actor must answer."""


READY_SECONDS = 5.0
"""Seconds that an answer that is there may take over the network."""


@dataclass(frozen=True)
class Member:
    """A rank or an engine: its name, its actor, and the node on which Ray placed it."""

    name: str  # "rank 1"
    actor: Any
    address: str = ""  # of its node
    node_id: str = ""

    def __str__(self) -> str:
        return f"{self.name} on node {self.address}" if self.address else self.name


class MemberLostError(DistributedError):
    """Raised where the actor of a rank or an engine is gone, or no longer answers."""


def ask(members: Sequence[Member], what: str, method: str, *arguments: Any) -> list[Any]:
    """Return what a method of each member's actor returns; ``what`` says so in errors."""
    calls = [getattr(member.actor, method).remote(*arguments) for member in members]
    return answers(dict(zip(calls, members, strict=True)), what, ANSWER_SECONDS)


def answers(calls: Mapping[Any, Member], what: str, limit: float) -> list[Any]:
    """Return the answers to calls of members, in their order, all within ``limit`` seconds."""
    _, late = ray.wait(list(calls), num_returns=len(calls), timeout=limit)
    if late:
        names = ", ".join(str(calls[call]) for call in late[:8])
        raise MemberLostError(
            f"{what}: {names} did not answer",
            got=f"no answer within {limit:g} s",
            remedy="`ray status` shows the nodes; the logs of Ray on the node have the cause",
        )
    return [answer(calls[call], call, what) for call in calls]


def answer(member: Member, call: Any, what: str) -> Any:
    """Return the answer to a call that is ready, or late.

    Raises:
        MemberLostError: Its actor is gone, or late.
        TruingError: The error that it raised.
    """
    try:
        return ray.get(call, timeout=READY_SECONDS)
    except (RayActorError, GetTimeoutError) as error:
        raise MemberLostError(
            f"{member} was lost: {_cause(member, error)}",
            got=" ".join(str(error).split())[:300],
            remedy="the logs of Ray on the node have the cause",
        ) from error
    except RayTaskError as error:
        if isinstance(error.cause, TruingError):
            raise error.cause from None
        raise _failed(member, what, error) from error
    except RayError as error:
        raise _failed(member, what, error) from error


def _cause(member: Member, error: RayError) -> str:
    """Return whether the node or only the process is gone, as far as Ray knows yet."""
    if isinstance(error, (ActorUnavailableError, GetTimeoutError)):
        return "its Ray process or its node does not answer"
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    if member.node_id and member.node_id not in alive:
        return "its node is gone"
    return "its Ray process has ended"


def _failed(member: Member, what: str, error: Exception) -> DistributedError:
    """Return the error of a call that failed on the other side, such as a node without Truing."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return DistributedError(
        f"{what}: {member} failed",
        got=" … ".join(dict.fromkeys([lines[0], lines[-1]])) if lines else type(error).__name__,
        remedy="install the same Truing and Python on every node of the cluster",
    )
