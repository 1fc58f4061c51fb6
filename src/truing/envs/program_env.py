"""The interface of environments whose episodes are programs that talk to the policy through an endpoint."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from truing.envs.base import Env
from truing.types.model_call import ModelCall
from truing.types.rollout import Task

EVERYTHING = "all"
"""The word in ``CallRules.override`` for every option."""


@dataclass(frozen=True)
class Access:
    """What a program needs to reach the policy."""

    url: str  # of the endpoint, without a path: http://127.0.0.1:8000
    key: str  # names the rollout


@dataclass(frozen=True)
class CallRules:
    """What programs may ask of the policy, and which of their conversations are trained."""

    # options of sampling, by OpenAI's names, that programs may ask for and do not get: the recipe's count
    override: frozenset[str] = frozenset()
    # whether a conversation is trained, by its first call and whether it is the program's first conversation
    trains: Callable[[ModelCall, bool], bool] = lambda call, first: first
    max_calls: int = 64  # of a rollout; further ones are refused
    max_tokens: int | None = None  # sampled in a rollout, after which calls are refused


@runtime_checkable
class ProgramEnv(Env, Protocol):
    """An environment whose episodes are programs of their own."""

    if TYPE_CHECKING:

        @property
        def at_once(self) -> int:
            """How many programs run at the same time."""
            ...

        @property
        def calls(self) -> CallRules:
            """The rules of their calls."""
            ...
    else:
        at_once: int
        calls: CallRules

    def run(self, task: Task, access: Access, name: str) -> Mapping[str, Any]:
        """Run a program to its end, and return its outcome, for rewards and the record: plain JSON data.

        Several threads call it at once.

        Args:
            task: what the program is to do.
            access: how it reaches the policy.
            name: of the rollout, unique in the run, and the same when the run is repeated.

        Raises:
            ProgramError: The program crashed, ran out of time, or could not be started: no reward follows.
        """
        ...

    def begin_collection(self, kept: int = 2) -> None:
        """Remove what programs left behind, but for the last ``kept`` collections with the one that begins.

        Rewards of a collection may look at it until then, also when they are computed again.
        """
        ...

    def stop(self) -> None:
        """End all programs that run: each ``run`` raises a ProgramError soon, until a collection begins."""
        ...
