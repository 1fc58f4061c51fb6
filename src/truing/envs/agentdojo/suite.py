"""A suite of the package ``agentdojo``: its tools, its tasks and their checks, behind Truing's protocol.

Imported by ``env.py`` alone, and only when the environment is made: the package is optional.
"""

import datetime
import json
from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from agentdojo.agent_pipeline.agent_pipeline import load_system_message
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.base_tasks import BaseUserTask
from agentdojo.default_suites.v1.tools import cloud_drive_client, email_client
from agentdojo.functions_runtime import Function, FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.task_suite import get_suite
from deepdiff import DeepDiff

from truing.envs.tools import Tool, ToolEpisode, ToolError
from truing.types.message import AssistantMessage, Message, ToolCall, ToolSpec
from truing.types.rollout import Task
from truing.utils.deep_copy import deep_copy

VERSION = "v1.2.2"
"""The version of the suites. Another one has other tasks and other checks."""


class OfficeTime(datetime.datetime):
    """The clock of the offices stands still: a world must be the same whenever it is opened."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        """Noon of the day that the offices say it is."""
        return datetime.datetime(2024, 5, 15, 12, tzinfo=tz)


# The two modules that stamp what they make with the time of the machine.
for module in (cloud_drive_client, email_client):
    module.datetime = SimpleNamespace(**{**vars(datetime), "datetime": OfficeTime})


class Suite:
    """One office: what is in it, which tools work there, and what is asked."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.published = get_suite(VERSION, name)
        self.runtime = FunctionsRuntime(self.published.tools)
        self.specs = tuple(_spec(function) for function in self.published.tools)
        self.office = self.published.load_and_inject_default_environment({})

    def tasks(self) -> list[Task]:
        """All tasks of the suite, in its order."""
        system = {"role": "system", "content": load_system_message(None)}
        return [
            Task(
                task_id=f"agentdojo-{self.name}-{task_id}",
                family=f"agentdojo/{self.name}",
                messages=(system, {"role": "user", "content": published.PROMPT}),
                answer={"suite": self.name, "task": task_id},
                demonstration=self._demonstration(published),
                tools=self.specs,
            )
            for task_id, published in self.published.user_tasks.items()
        ]

    def open(self, task_id: str) -> "OfficeEpisode":
        """An episode of one task, in a copy of the office."""
        published = self.published.user_tasks[task_id]
        return OfficeEpisode(self, published, self._office(published))

    def _office(self, published: BaseUserTask) -> TaskEnvironment:
        """A copy of the office as the task wants it."""
        return published.init_environment(self.office.model_copy(deep=True))

    def _demonstration(self, published: BaseUserTask) -> tuple[AssistantMessage, ...]:
        """The reference calls, one a turn, then the text that the answer must hold."""
        calls = published.ground_truth(self._office(published))
        turns = (AssistantMessage(calls=(ToolCall(call.function, dict(call.args)),)) for call in calls)
        return (*turns, AssistantMessage(published.GROUND_TRUTH_OUTPUT))


class OfficeEpisode(ToolEpisode):
    """One attempt: calls change the office, and what is said last is the answer."""

    def __init__(self, suite: Suite, published: BaseUserTask, office: TaskEnvironment) -> None:
        super().__init__([Tool(spec, partial(self._carry_out, spec.name)) for spec in suite.specs])
        self._runtime = suite.runtime
        self._published = published
        self._before, self._after = office, office.model_copy(deep=True)
        self._calls: list[FunctionCall] = []
        self._text = ""

    def reply(self, message: AssistantMessage) -> Sequence[Message]:
        """One message per call; text without a call is the answer."""
        self._text = message.content
        return super().reply(message)

    def outcome(self) -> Mapping[str, Any]:
        """The verdict of the published check, and what changed in the office."""
        before, after = (office.model_dump(mode="json") for office in (self._before, self._after))
        return {"solved": self.solved(), "changes": json.loads(DeepDiff(before, after).to_json())}

    def solved(self) -> bool:
        """The verdict of the published check."""
        seen = (self._text, self._before, self._after)
        verdict = self._published.utility_from_traces(*seen, self._calls)
        if verdict is None:  # the task is judged by its result, not by its calls
            verdict = self._published.utility(*seen)
        return bool(verdict)

    def _carry_out(self, tool: str, /, **arguments: Any) -> str:
        """Run one tool of the package, which reports every failure of its tools as text for the model."""
        call = FunctionCall(function=tool, args=deep_copy(arguments, f"a call of {tool}"))
        self._calls.append(call)  # as it was made: the tool may change its arguments
        result, problem = self._runtime.run_function(self._after, tool, arguments)
        if problem is not None:
            raise ToolError(problem)
        return tool_result_to_str(result)


def _spec(function: Function) -> ToolSpec:
    """What the model is told of a function."""
    schema = function.parameters.model_json_schema()
    del schema["title"]
    return ToolSpec(function.name, function.description, schema)
