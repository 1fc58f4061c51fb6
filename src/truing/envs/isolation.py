"""Episodes that share no object with Truing: arguments and results are copies.

An episode is user code. It may keep the lists of a call and change them later, return its live state, or
change its task. So every episode is opened through ``open_isolated``, or wrapped if a loader opens one itself
to run reference calls.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from truing.envs.base import Episode, MultiTurnEnv
from truing.envs.tools import ToolEpisode
from truing.types.message import AssistantMessage, Message
from truing.types.rollout import Task
from truing.utils.deep_copy import deep_copy


class IsolatedEpisode:
    """An episode that copies everything it receives and returns."""

    def __init__(self, episode: Episode) -> None:
        self._episode = episode

    def reply(self, message: AssistantMessage) -> Sequence[Message]:
        """Return a copy of the replies."""
        return deep_copy(
            tuple(self._episode.reply(deep_copy(message, "the turn"))), "the environment's reply"
        )

    def tool_names(self) -> tuple[str, ...] | None:
        """Return the names of its tools; None if only the episode knows them."""
        return tuple(self._episode.tools) if isinstance(self._episode, ToolEpisode) else None

    def outcome(self) -> Mapping[str, Any]:
        """Return a copy of the outcome."""
        return deep_copy(self._episode.outcome(), "the environment's outcome")


def open_isolated(env: MultiTurnEnv, task: Task) -> IsolatedEpisode:
    """Return a new episode, opened for a copy of the task."""
    return IsolatedEpisode(env.open(deep_copy(task, f"task {task.task_id}")))
