"""A problem in the office: the request, the office, and the right calls."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from truing.envs.isolation import IsolatedEpisode
from truing.envs.workspace.state import Office
from truing.envs.workspace.tools import TOOLS, open_office
from truing.types.message import AssistantMessage, ToolCall


@dataclass(frozen=True)
class Problem:
    """One thing to do. ``combination`` is the request without its phrasing, the key of the split."""

    asked: str
    split_key: tuple[str, ...]
    office: Office
    turns: tuple[AssistantMessage, ...]

    def used_tools(self) -> set[str]:
        """Return the tools of the right calls."""
        return {call.name for turn in self.turns for call in turn.calls}

    def final_state(self) -> dict[str, Any]:
        """Return the state after the right calls."""
        return self._states()[-1]

    def turns_without_lookups(self) -> tuple[AssistantMessage, ...]:
        """The demonstration without lookups: the turns that change the office, and the last."""
        *acting, last = zip(self.turns, pairwise(self._states()), strict=True)
        return (*(turn for turn, (before, after) in acting if before != after), last[0])

    def _states(self) -> list[dict[str, Any]]:
        """The state before the first turn, and after each."""
        episode = IsolatedEpisode(open_office(self.office.snapshot(), TOOLS))
        states = [dict(episode.outcome())]
        for turn in self.turns:
            episode.reply(turn)
            states.append(dict(episode.outcome()))
        return states


def call(name: str, /, **arguments: Any) -> ToolCall:
    """A call of a tool."""
    return ToolCall(name, arguments)


def steps(*calls: ToolCall, end: str) -> tuple[AssistantMessage, ...]:
    """Return one turn per call, and a closing sentence."""
    return (*(AssistantMessage(calls=(each,)) for each in calls), AssistantMessage(end))
