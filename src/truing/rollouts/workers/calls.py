"""Calls of environments, tools and rewards: what threads and processes run, and their results."""

import json
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from truing.envs.base import Env, MultiTurnEnv
from truing.envs.isolation import IsolatedEpisode, open_isolated
from truing.errors import JudgeUnavailable, RewardError, SkipGroup, TruingError
from truing.rewards import grade
from truing.types.message import AssistantMessage, Message, hash_of_message, hash_of_outcome

T = TypeVar("T")
C = TypeVar("C", contravariant=True)


class Pool(Protocol[C]):
    """Runs calls and keeps their results until they are taken."""

    @property
    def unfinished(self) -> int:
        """Calls whose result was not yet taken."""
        ...

    def submit(self, index: int, call: C, /) -> None:
        """Add a call; ``index`` names its result."""
        ...

    def poll(self) -> "dict[int, CallResult[Any]]":
        """Return the results that there are, by index."""
        ...

    def wait(self) -> "dict[int, CallResult[Any]]":
        """Wait for a result, and return all that there are, by index; {} if no call is left."""
        ...

    def shut_down(self) -> None:
        """Start no further call."""
        ...


def run_all(pool: Pool[C], calls: Iterable[C]) -> "list[CallResult[Any]]":
    """Run calls in a new pool and return their results, in their order."""
    results: dict[int, CallResult[Any]] = {}
    try:
        for index, call in enumerate(calls):
            pool.submit(index, call)
        while pool.unfinished:
            results |= pool.wait()
    finally:  # after an interrupt no further call starts
        pool.shut_down()
    return [results[index] for index in range(len(results))]


@dataclass
class CallResult(Generic[T]):
    """The result of a call: its value, or an error: a traceback, a timeout or the end of its process."""

    value: T | None = None
    error: str = ""
    raised: TruingError | None = None  # by a reward: the run decides what follows


@dataclass(frozen=True)
class EnvCall:
    """A call of an environment or its rewards, as data, so that a process can run it.

    ``argument`` is the task of ``open``, the policy's turn of ``reply``, the rollout of ``grade``, and the
    number of characters of a reply that ``outcome`` hashes.
    """

    kind: Literal["open", "reply", "outcome", "close", "grade"]
    episode: int  # its id; 0 for ``grade``
    argument: Any = None

    def __str__(self) -> str:
        if self.kind == "reply":
            return reply_name(self.argument)
        if self.kind == "grade":
            return f"the reward of task {self.argument.task.task_id!r}"
        return {"open": "open()", "outcome": "outcome()", "close": "the end of an episode"}[self.kind]


def reply_name(turn: AssistantMessage) -> str:
    """Return what a turn asks for: the tools that it calls, by name."""
    names = list(dict.fromkeys(call.name for call in turn.calls))
    return f"tool {', '.join(map(repr, names))}" if names else "reply()"


class EpisodeTable:
    """An environment and its open episodes by id, in the process in which they live."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._episodes: dict[int, IsolatedEpisode] = {}
        self._replies: dict[int, list[Message]] = {}  # so far, by episode

    def run(self, call: EnvCall) -> Any:
        """Run a call and return its value.

        That of ``open`` is the names of the episode's tools. That of ``outcome`` is the outcome with a hash
        of each of the episode's replies and one of the outcome, to compare what its rollout has with them.
        """
        if call.kind == "open":
            assert isinstance(self._env, MultiTurnEnv)
            episode = self._episodes[call.episode] = open_isolated(self._env, call.argument)
            self._replies[call.episode] = []
            return episode.tool_names()
        if call.kind == "grade":
            return grade(call.argument, self._env.rewards)
        if call.kind == "close":
            self._replies.pop(call.episode, None)
            return self._episodes.pop(call.episode, None) is not None
        episode = self._episodes[call.episode]
        if call.kind == "reply":
            messages = [_encodable(message) for message in episode.reply(call.argument)]
            self._replies[call.episode] += map(dict, messages)
            return messages
        hashes = [hash_of_message(message, call.argument) for message in self._replies[call.episode]]
        outcome = _recordable(episode.outcome())
        return outcome, [*hashes, hash_of_outcome(outcome)]


def _encodable(message: Message) -> Message:
    """Return an environment's message that can be encoded and stored: U+FFFD for each lone surrogate."""
    role, content = message["role"], message["content"]
    if not isinstance(role, str) or not isinstance(content, str):
        raise TypeError(f"a message needs a role and a content of text, got {message!r:.200}")
    return {**message, "content": content.encode("utf-16", "surrogatepass").decode("utf-16", "replace")}


def _recordable(outcome: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an outcome if JSON can store it; else raise, so that the rollout fails and not the run."""
    json.dumps(dict(outcome), allow_nan=False)
    return outcome


REWARD_ERRORS = (RewardError, JudgeUnavailable, SkipGroup)
"""Errors of a reward that end the run, or its group."""


def call_result(call: Callable[[], T]) -> CallResult[T]:
    """Make a call and return its result; an exception is a result, not a crash.

    What it sets in its context (the precision of decimals) does not reach the next call.
    """
    try:
        return CallResult(value=Context().run(call))
    except BaseException as error:  # noqa: BLE001 — user code: in a thread, sys.exit() ends the thread only
        raised = error if isinstance(error, REWARD_ERRORS) else None
        return CallResult(error=traceback.format_exc(), raised=raised)
