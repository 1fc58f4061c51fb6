"""The environment of a TRL data set: a task per row, with TRL's tools and environments."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from truing.envs.base import Split
from truing.envs.conversations import Conversation, row_notes
from truing.envs.tools import Tool, ToolEpisode
from truing.errors import DataError
from truing.rewards import Rewards
from truing.trl.data.reset import reset_text
from truing.trl.data.rows import Row, columns_of, conversations_of
from truing.trl.data.signatures import parameter_names
from truing.trl.data.tools import environment_tools, made, tools_of
from truing.types.message import Message
from truing.types.rollout import Rollout, Task

Factories = Mapping[str | None, Callable[[], Any]]


class EnvironmentName(str):
    """The class of an environment, as it is recorded, with the environment itself for rewards."""

    environment: Any

    def __new__(cls, environment: Any) -> "EnvironmentName":
        """Name an environment."""
        name = super().__new__(cls, type(environment).__name__)
        name.environment = environment
        return name

    def __deepcopy__(self, memo: object) -> "EnvironmentName":
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Leave the environment to its process."""
        return str, (str(self),)


class RowsEnv:
    """Single-turn tasks of rows with a ``prompt``."""

    has_episodes = False

    def __init__(self, rows: Mapping[Split, Sequence[Row]]) -> None:
        self.rows = {task_id(split, i): row for split, each in rows.items() for i, row in enumerate(each)}
        self.prompts: dict[str, Conversation] = {}
        self._count = {split: len(each) for split, each in rows.items()}
        self.columns = columns_of(row for each in rows.values() for row in each)
        self.rewards: Rewards = {}
        self.notes: Sequence[str] = ()
        for split, each in rows.items():
            dataset = f"{split}_dataset"
            read = conversations_of(each, dataset, ("prompt",), raw=True, tools=None)
            self.prompts |= {task_id(split, i): prompt for i, prompt in enumerate(read)}
            noted = [prompt.noting_marks(()) for prompt in read]
            self.notes = [*self.notes, *row_notes(noted, dataset)]

    @property
    def columns_read(self) -> set[str]:
        """The columns that change a task."""
        return {"prompt", "chat_template_kwargs"}

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return a task per row, in order."""
        ids = [task_id(split, index) for index in range(self._count.get(split, 0))]
        return [self.task(each) for each in ids]

    def task(self, name: str) -> Task:
        """Return the task of a row."""
        prompt = self.prompts[name]
        return Task(name, "trl", prompt.messages, template_kwargs=prompt.template_kwargs, where=prompt.where)

    def environments(self, rollouts: Sequence[Rollout]) -> list[Any] | None:
        """Return the environments of rollouts; None if they have none."""
        return None

    def release(self, rollouts: Sequence[Rollout]) -> None:
        """Let the environments of rollouts serve others."""


class ToolsEnv(RowsEnv):
    """The same with tools."""

    has_episodes = True

    def __init__(self, rows: Mapping[Split, Sequence[Row]], tools: Sequence[Callable[..., Any]]) -> None:
        super().__init__(rows)
        self.tools = tools_of(tools)

    def task(self, name: str) -> Task:
        """Return the task of a row, with the tools."""
        return replace(super().task(name), tools=tuple(tool.spec for tool in self.tools))

    def open(self, task: Task) -> ToolEpisode:
        """Return an episode that executes tools until a turn without a call."""
        return ToolEpisode(self.tools)


class FactoryEnv(RowsEnv):
    """Tasks whose rollouts each have an environment object; it is reset for each, and used again later."""

    has_episodes = True

    def __init__(
        self, rows: Mapping[Split, Sequence[Row]], factories: Factories, tools: Sequence[Callable[..., Any]]
    ) -> None:
        super().__init__(rows)
        self._factories, self._common = factories, tools_of(tools)
        self._free: dict[str | None, list[Any]] = {name: [made(make)] for name, make in factories.items()}
        self._specs = {name: self._tools(free[0]) for name, free in self._free.items()}
        self._texts: dict[str, str] = {}  # what reset returned, by task

    @property
    def columns_read(self) -> set[str]:
        """The same, with the column that chooses an environment, and those that ``reset`` names."""
        choice: set[str] = set() if None in self._factories else {"environment"}
        return super().columns_read.union(choice, *(parameter_names(each.reset) for each in self.samples))

    @property
    def samples(self) -> list[Any]:
        """One environment of each kind."""
        return [free[0] for free in self._free.values()]

    def task(self, name: str) -> Task:
        """Return the task of a row: ``reset`` may add to its last user message."""
        kind = self._kind(self.rows[name])
        if name not in self._texts:
            self._texts[name] = self._reset(self._free[kind][0], name)
            if len(self._texts) == 1:  # a reset that gives other texts is an error before the training
                self._check_text(name, self._reset(self._free[kind][0], name))
        specs, task = tuple(tool.spec for tool in self._specs[kind]), super().task(name)
        return replace(task, messages=_with_text(task.messages, self._texts[name]), tools=specs)

    def open(self, task: Task) -> ToolEpisode:
        """Return an episode with an environment of its own, reset for the task."""
        row = self.rows[task.task_id]
        kind = self._kind(row)
        try:
            environment = self._free[kind].pop()  # of one thread: lists are thread-safe
        except IndexError:
            environment = self._factories[kind]()
        self._check_text(task.task_id, self._reset(environment, task.task_id))
        return ToolEpisode(self._tools(environment), lambda: {"environment": EnvironmentName(environment)})

    def environments(self, rollouts: Sequence[Rollout]) -> list[Any] | None:
        """Return the environments of rollouts."""
        return [rollout.outcome["environment"].environment for rollout in rollouts]

    def release(self, rollouts: Sequence[Rollout]) -> None:
        """Let the environments of rollouts serve others."""
        for rollout in rollouts:
            kind = self._kind(self.rows[rollout.task.task_id])
            self._free[kind].append(rollout.outcome["environment"].environment)

    def _reset(self, environment: Any, name: str) -> str:
        """Reset an environment for a task's row; return the text that it adds to the prompt."""
        routed = None not in self._factories  # then `environment` is not a column of the task
        row = self.rows[name]
        columns = {key: row[key] for key in row if not (routed and key == "environment")}
        return reset_text(environment, name, columns)

    def _check_text(self, name: str, text: str) -> None:
        """Raise if ``reset`` returned another text for a task than before."""
        if text != self._texts.get(name, text):
            raise DataError(
                f"reset() returned another text for {name} than before",
                got=f"{text!r:.200}",
                expected=f"{self._texts[name]!r:.200}",
                remedy="all rollouts of a row share one prompt: give each row a seed, and reset the"
                " environment with it",
            )

    def _tools(self, environment: Any) -> list[Tool]:
        return [*self._common, *tools_of(environment_tools(environment))]

    def _kind(self, row: Row) -> str | None:
        """Return the name of a row's environment."""
        name = None if None in self._factories else row.get("environment")
        if name not in self._factories:
            raise DataError(
                "a row names an environment that environment_factory does not have",
                got=name,
                expected=", ".join(map(str, self._factories)),
                remedy="give each row an 'environment' column",
            )
        return name


def env_of(
    rows: Mapping[Split, Sequence[Row]], factories: Factories, tools: Sequence[Callable[..., Any]]
) -> RowsEnv:
    """Return the environment of rows, with tools or environment objects if there are any."""
    if factories:
        return FactoryEnv(rows, factories, tools)
    return ToolsEnv(rows, tools) if tools else RowsEnv(rows)


def task_id(split: Split, index: int) -> str:
    """Return the id of a row's task."""
    return f"{split}-{index}"


def _with_text(messages: tuple[Message, ...], text: str) -> tuple[Message, ...]:
    """Return messages with a text appended to the last one."""
    return (*messages[:-1], {**messages[-1], "content": messages[-1]["content"] + text})
