"""WorkBench: office tasks over five tables, graded by the final tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from truing.config import FrozenModel
from truing.envs.base import Split, hash_fraction
from truing.envs.isolation import IsolatedEpisode
from truing.envs.tools import ToolEpisode
from truing.rewards import Rewards
from truing.types.message import AssistantMessage, ToolCall, ToolSpec
from truing.types.rollout import Rollout, Task
from truing.types.status import Status

from .data import Folder, TaskRow, read_folder
from .office import Office

SYSTEM = (
    "You work in an office through tools. It is Thursday, 2023-11-30, 00:00. "
    "Meetings lie between 09:00 and 18:00. Do what you are asked and nothing else, then say that it is done."
)
DONE = "Done."
"""The last message of the demonstrations."""

SHORT_NAMES = {"crm": "customer_relationship_manager"}
"""Domains with other names in tasks than in tools."""

EXACT_FIELDS = ("status", "list_name", "board")
"""Fields that WorkBench compares with case; all others without."""


class WorkBenchConfig(FrozenModel):
    """Where the data is, its split, and the tools shown."""

    data: str
    """The folder with tasks.jsonl, tools.jsonl, email_addresses.jsonl and the state_*.jsonl tables."""
    tools: Literal["all", "domains"] = "all"
    """Whether a task shows all tools, or those of its own domains and the company directory."""
    eval_share: Annotated[float, Field(gt=0, lt=1)] = 0.25
    """Share of templates for evaluation: those whose SHA-256 of (seed, text), in [0, 1), is below it."""
    seed: int = 0
    """Another seed selects other templates for evaluation."""
    system: str = SYSTEM
    """The system message."""


class WorkBench:
    """Each episode has an office of its own; a task is solved if its final state equals the reference's."""

    Config = WorkBenchConfig

    def __init__(self, config: WorkBenchConfig) -> None:
        self.config = config
        self.rewards: Rewards = {"solved": (solved, 1.0), "side_effects": (side_effects, 0.0)}
        self._folder: Folder = read_folder(Path(config.data))
        self._tasks: dict[Split, list[Task]] = {"train": [], "eval": []}
        for row in self._folder.tasks:
            for_eval = hash_fraction("split", config.seed, row.base_template) < config.eval_share
            self._tasks["eval" if for_eval else "train"].append(self._task(row))
        self.idle = tuple(task.task_id for each in self._tasks.values() for task in each if not task.answer)
        """Tasks without a required change in the data: solved without any action."""
        self.notes = (
            *self._folder.notes,
            f"tasks that doing nothing solves, since their reference changes nothing: {len(self.idle)}",
        )

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split, in the order of the data; the tasks of a template are in one split."""
        return self._tasks[split]

    def open(self, task: Task) -> ToolEpisode:
        """Return a new office with the task's tools."""
        return self._episode(task.tools)

    def _episode(self, specs: Sequence[ToolSpec]) -> ToolEpisode:
        """Return a new office with some tools."""
        office = Office(self._folder.start)
        return ToolEpisode(office.tools(specs), office.outcome)

    def _task(self, row: TaskRow) -> Task:
        """Return a row as a task; its answer is the reference's changes."""
        calls = [ToolCall(call.tool, call.args) for call in row.ground_truth_calls]
        reference = IsolatedEpisode(self._episode(self._folder.specs))
        for call in calls:
            reference.reply(AssistantMessage(calls=(call,)))
        system = [{"role": "system", "content": self.config.system}] if self.config.system else []
        return Task(
            task_id=row.id,
            family=f"workbench/{row.domain}",
            messages=(*system, {"role": "user", "content": row.query}),
            answer=reference.outcome(),
            demonstration=(*(AssistantMessage(calls=(call,)) for call in calls), AssistantMessage(DONE)),
            tools=tuple(spec for spec in self._folder.specs if self._shows(row, spec)),
        )

    def _shows(self, row: TaskRow, spec: ToolSpec) -> bool:
        """Whether a task shows a tool."""
        domains = {SHORT_NAMES.get(name, name) for name in row.domains}
        return self.config.tools == "all" or spec.name.partition(".")[0] in domains | {"company_directory"}


def solved(rollout: Rollout, task: Task) -> float:
    """Return 1.0 if the rollout ended and its office equals the reference's."""
    return float(rollout.status is Status.DONE and _is_correct(rollout, task))


def side_effects(rollout: Rollout, task: Task) -> float:
    """Return 1.0 if the rollout made unwanted changes: WorkBench's second measure."""
    return float(bool(rollout.outcome) and not _is_correct(rollout, task))


def _is_correct(rollout: Rollout, task: Task) -> bool:
    """Whether the final office equals the reference's."""
    return _folded(rollout.outcome) == _folded(task.answer)


def _folded(changes: Any, field: str = "") -> Any:
    """Return changes as WorkBench compares them: in lower case, except some fields."""
    if isinstance(changes, str):
        return changes if field in EXACT_FIELDS else changes.lower()
    if isinstance(changes, Mapping):
        return {key: _folded(each, key) for key, each in changes.items()}
    return [_folded(each, field) for each in changes] if isinstance(changes, list) else changes
