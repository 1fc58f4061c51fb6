"""tau-bench retail: requests of customers, graded by the shop's data and the required outputs."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from truing.config import FrozenModel
from truing.envs.base import Split, hash_fraction
from truing.envs.isolation import IsolatedEpisode
from truing.envs.tools import Tool, ToolEpisode
from truing.errors import DataError
from truing.rewards import Rewards, without_reasoning
from truing.types.message import AssistantMessage, ToolCall, ToolSpec
from truing.types.rollout import Rollout, Task
from truing.types.status import Status

from .data import TaskRow, read_folder
from .lookups import Lookups
from .orders import Orders
from .store import Store

ONE_MESSAGE = (
    "The customer sends one message, in which 'you' is the customer, and answers nothing after it. "
    "Take every confirmation as given. Act, and then reply once with all that the customer wants to know."
)
"""Text after the policy document, which assumes a customer who answers."""


class TauBenchConfig(FrozenModel):
    """Where the data is, and how it is split."""

    data: str
    """The folder with tasks.jsonl, tools.jsonl, retail_policy.md and the retail_db_*.jsonl tables."""
    eval_share: Annotated[float, Field(gt=0, lt=1)] = 0.25
    """Share of customers for evaluation: those whose SHA-256 of (seed, user id), in [0, 1), is below it."""
    seed: int = 0
    """Another seed selects other customers for evaluation."""


class TauBench:
    """Each episode has its own shop; the customer's instruction is the one user message."""

    Config = TauBenchConfig

    def __init__(self, config: TauBenchConfig) -> None:
        self.rewards: Rewards = {"solved": (solved, 1.0), "state": (state, 0.0)}
        self._folder = read_folder(Path(config.data))
        self._tasks: dict[Split, list[Task]] = {"train": [], "eval": []}
        for row in self._folder.tasks:
            for_eval = hash_fraction("split", config.seed, row.user_id) < config.eval_share
            self._tasks["eval" if for_eval else "train"].append(self._task(row))
        everything = (*self._tasks["train"], *self._tasks["eval"])
        self.idle = tuple(
            task.task_id for task in everything if task.answer == {"changes": {}, "outputs": []}
        )
        """Tasks without a required change or output in the data: solved without any action."""
        self.notes = (
            *self._folder.notes,
            f"left out tasks of other domains, whose databases are not read: {self._folder.left_out}",
            "no user is simulated: the instruction is the customer's one message",
            f"tasks that doing nothing solves, as their reference changes and says nothing: {len(self.idle)}",
        )

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split, in the order of the data; the tasks of a customer are in one split."""
        return self._tasks[split]

    def open(self, task: Task) -> ToolEpisode:
        """Return a new shop."""
        return self._episode()

    def _episode(self) -> ToolEpisode:
        """Return a new shop with its tools."""
        store = Store(self._folder.start)
        tool_groups = (Lookups(store), Orders(store))
        return ToolEpisode([_tool(spec, tool_groups) for spec in self._folder.specs], store.changes)

    def _task(self, row: TaskRow) -> Task:
        """Return a row as a task; its answer is the reference's changes and the required outputs."""
        calls = [ToolCall(action.name, action.kwargs) for action in row.actions]
        reference = IsolatedEpisode(self._episode())
        for call in calls:
            reference.reply(AssistantMessage(calls=(call,)))
        return Task(
            task_id=row.id,
            family="taubench/retail",
            messages=(
                {"role": "system", "content": f"{self._folder.policy}\n\n{ONE_MESSAGE}"},
                {"role": "user", "content": row.instruction},
            ),
            answer={"changes": reference.outcome(), "outputs": list(row.outputs)},
            demonstration=(
                *(AssistantMessage(calls=(call,)) for call in calls),
                AssistantMessage("; ".join(["Done", *row.outputs])),
            ),
            tools=self._folder.specs,
        )


def solved(rollout: Rollout, task: Task) -> float:
    """Return 1.0 if the rollout ended with the right data, and its last message has all outputs."""
    text = without_reasoning(rollout.text).lower().replace(",", "")
    has_outputs = all(output.lower().replace(",", "") in text for output in task.answer["outputs"])
    return float(rollout.status is Status.DONE and has_outputs and state(rollout, task))


def state(rollout: Rollout, task: Task) -> float:
    """Return 1.0 if the shop's data equals the reference's final data."""
    return float(rollout.outcome == task.answer["changes"])


def _tool(spec: ToolSpec, tool_groups: Sequence[object]) -> Tool:
    """Return a tool, executed by the method of its name."""
    candidates = [getattr(group, spec.name, None) for group in tool_groups]
    functions = [each for each in candidates if inspect.ismethod(each) and not spec.name.startswith("_")]
    if not functions:
        raise DataError("the data names a tool that tau-bench retail does not have", got=spec.name)
    return Tool(replace(spec, parameters=_without_enums(spec.parameters)), partial(_written, functions[0]))


def _written(function: Callable[..., Any], /, **arguments: Any) -> str:
    """Return the published shop's answer: text, or a record as JSON."""
    answer = function(**arguments)
    return answer if isinstance(answer, str) else json.dumps(answer)


def _without_enums(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool without the values that an argument may have: the shop itself rejects others."""
    properties = schema.get("properties", {}).items()
    open_ones = {
        name: {key: each for key, each in part.items() if key != "enum"} for name, part in properties
    }
    return {**schema, "properties": open_ones}
