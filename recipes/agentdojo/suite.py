"""A suite of the package ``agentdojo``: its tools, its tasks and their checks, behind Truing's protocol.

Only ``env.py`` imports it, when the environment is built: the package is optional.
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
"""The version of the suites. Other versions have other tasks and checks."""


class OfficeTime(datetime.datetime):
    """The fixed time of the offices: a task must open equal episodes every time."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        """Noon of the offices' current day."""
        return datetime.datetime(2024, 5, 15, 12, tzinfo=tz)


# The two modules that use the machine's time.
for module in (cloud_drive_client, email_client):
    vars(module)["datetime"] = SimpleNamespace(**{**vars(datetime), "datetime": OfficeTime})


class Suite:
    """One office: its data, its tools and its tasks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.published = get_suite(VERSION, name)
        self.runtime = FunctionsRuntime(self.published.tools)
        self.specs = tuple(_spec(function) for function in self.published.tools)
        self.office = self.published.load_and_inject_default_environment({})

    def tasks(self) -> list[Task]:
        """Return all tasks of the suite, in its order."""
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
        """Return an episode of one task, in a copy of the office."""
        published = self.published.user_tasks[task_id]
        return OfficeEpisode(self, published, self._office(published))

    def _office(self, published: BaseUserTask) -> TaskEnvironment:
        """Return a copy of the office, prepared for the task."""
        return published.init_environment(self.office.model_copy(deep=True))

    def _demonstration(self, published: BaseUserTask) -> tuple[AssistantMessage, ...]:
        """Return the reference calls, one per turn, then the text that the answer must contain."""
        calls = published.ground_truth(self._office(published))
        turns = (AssistantMessage(calls=(ToolCall(call.function, dict(call.args)),)) for call in calls)
        return (*turns, AssistantMessage(published.GROUND_TRUTH_OUTPUT))


class OfficeEpisode(ToolEpisode):
    """One rollout: calls change the office; the last text is the answer."""

    def __init__(self, suite: Suite, published: BaseUserTask, office: TaskEnvironment) -> None:
        super().__init__([Tool(spec, partial(self._execute, spec.name)) for spec in suite.specs])
        self._runtime = suite.runtime
        self._published = published
        self._before, self._after = office, office.model_copy(deep=True)
        self._calls: list[FunctionCall] = []
        self._text = ""

    def reply(self, message: AssistantMessage) -> Sequence[Message]:
        """Return one message per call; text without a call is the answer."""
        self._text = message.content
        return super().reply(message)

    def outcome(self) -> Mapping[str, Any]:
        """Return the verdict of the published check, and the changes in the office."""
        before, after = (office.model_dump(mode="json") for office in (self._before, self._after))
        return {"solved": self.solved(), "changes": json.loads(DeepDiff(before, after).to_json())}

    def solved(self) -> bool:
        """Return the verdict of the published check."""
        seen = (self._text, self._before, self._after)
        verdict = self._published.utility_from_traces(*seen, self._calls)
        if verdict is None:  # the result is graded, not the calls
            verdict = self._published.utility(*seen)
        return bool(verdict)

    def _execute(self, tool: str, /, **arguments: Any) -> str:
        """Run one tool of the package, which reports every failure as text for the model."""
        call = FunctionCall(function=tool, args=deep_copy(arguments, f"a call of {tool}"))
        self._calls.append(call)  # a copy: the tool may change its arguments
        result, problem = self._runtime.run_function(self._after, tool, arguments)
        if problem is not None:
            raise ToolError(problem)
        return tool_result_to_str(result)


def _spec(function: Function) -> ToolSpec:
    """Return the description of a function for the model."""
    schema = function.parameters.model_json_schema()
    del schema["title"]
    return ToolSpec(function.name, function.description, schema)
