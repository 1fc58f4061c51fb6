"""A problem in the office: what is asked, of which office, and the calls that do it."""

from dataclasses import dataclass
from typing import Any

from truing.envs.workspace.state import Office
from truing.envs.workspace.tools import TOOLS, open_office
from truing.messages import Said, ToolCall


@dataclass(frozen=True)
class Problem:
    """One thing to do. ``combination`` is what was asked, apart from its phrasing: splits go by it."""

    asked: str
    combination: tuple[str, ...]
    office: Office
    turns: tuple[Said, ...]

    def used_tools(self) -> set[str]:
        """The tools that the right calls are of."""
        return {call.name for said in self.turns for call in said.calls}

    def wanted(self) -> dict[str, Any]:
        """The state after the right calls."""
        episode = open_office(self.office.snapshot(), TOOLS)
        for said in self.turns:
            episode.reply(said)
        return dict(episode.outcome())


def call(name: str, /, **arguments: Any) -> ToolCall:
    """A call of a tool."""
    return ToolCall(name, arguments)


def steps(*calls: ToolCall, end: str) -> tuple[Said, ...]:
    """One turn per call, and a closing sentence."""
    return (*(Said(calls=(each,)) for each in calls), Said(end))
