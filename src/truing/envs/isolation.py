"""Worlds that share no object with Truing: what goes in is a copy, and so is what comes out.

A world is somebody else's code. It may keep the lists of a call and change them later, give out its live
state, or change the task that it was opened for. Every world is therefore opened through ``open_isolated``,
or wrapped where a loader makes one itself to play reference calls.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from truing.envs.base import Episode, MultiTurnEnv
from truing.types.message import AssistantMessage, Message
from truing.types.rollout import Task
from truing.utils.deep_copy import deep_copy


class IsolatedEpisode:
    """An episode, with a copy made of everything that is said to it and that it answers."""

    def __init__(self, episode: Episode) -> None:
        self._episode = episode

    def reply(self, message: AssistantMessage) -> Sequence[Message]:
        """What the world answers, as it is now."""
        return deep_copy(
            tuple(self._episode.reply(deep_copy(message, "what was said"))), "the world's answer"
        )

    def outcome(self) -> Mapping[str, Any]:
        """The world's state, as it is now."""
        return deep_copy(self._episode.outcome(), "the world's outcome")


def open_isolated(env: MultiTurnEnv, task: Task) -> IsolatedEpisode:
    """A new episode, opened for a copy of the task."""
    return IsolatedEpisode(env.open(deep_copy(task, f"task {task.task_id}")))
