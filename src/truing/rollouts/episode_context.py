"""What the rollouts of a collection share, and where their turns come from."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from truing.chat import Chat
from truing.config import EpisodeConfig
from truing.engines.base import Completion
from truing.envs.base import Env
from truing.rollouts.conversation import Conversation
from truing.rollouts.endpoint import ProgramEndpoint, open_endpoint
from truing.rollouts.workers import EnvWorkers, open_workers
from truing.types.sampling_params import SamplingParams

C = TypeVar("C", bound=Conversation)


EndedFn = Callable[[int, int], None]
"""Called while rollouts run, with the number of ended ones and of all."""


def group_id(*key: object) -> str:
    """Return the id of the group of a task."""
    return "/".join(map(str, key))


class RunningTurns(Protocol[C]):
    """Turns that are being sampled."""

    @property
    def unfinished(self) -> int:
        """Conversations whose next turn is not finished."""
        ...

    def add(self, conversations: Sequence[C]) -> None:
        """Begin the next turn of each conversation."""
        ...

    def step(self) -> list[tuple[C, Completion]]:
        """Sample further, and return the turns that finished; it may wait some milliseconds."""
        ...

    def release(self, conversation: C) -> None:
        """Free what is cached for a conversation that has ended."""
        ...


class TurnSource(Protocol):
    """Gives the next turn of each conversation: the policy, or the demonstrations."""

    def running_turns(self) -> AbstractContextManager[RunningTurns[Any]]:
        """Return the turns of one collection."""
        ...


@dataclass(frozen=True, eq=False)
class EpisodeContext:
    """What every rollout shares: chat template, environment, sampling parameters and limits."""

    chat: Chat
    env: Env
    sampling_params: SamplingParams
    limits: EpisodeConfig
    context_length: int
    workers: EnvWorkers | None = None  # None: each ``running_workers`` opens and closes its own
    endpoint: ProgramEndpoint | None = None  # the same for the endpoint of an environment of programs
    kept: int = 2  # collections whose workspaces of programs stay, with the one that runs

    @contextmanager
    def running_workers(self) -> Iterator[EnvWorkers]:
        """Return the workers of the environment."""
        if self.workers is not None:
            yield self.workers
            return
        with closing(open_workers(self.env, self.limits)) as workers:
            yield workers

    @contextmanager
    def running_endpoint(self) -> Iterator[ProgramEndpoint]:
        """Return the endpoint that programs call."""
        if self.endpoint is not None:
            yield self.endpoint
            return
        with closing(open_endpoint()) as endpoint:
            yield endpoint
