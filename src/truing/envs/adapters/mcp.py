"""The tools of any MCP server, with tasks from a file."""

import threading
from collections.abc import Sequence
from tempfile import TemporaryFile
from typing import Annotated

from pydantic import Field, model_validator

from truing.config import FrozenModel, PositiveFloat
from truing.envs.adapters.mcp_session import McpSession
from truing.envs.base import Episode, Split
from truing.envs.conversations import read_row
from truing.envs.data.rows import Row, parse_spec, read_rows
from truing.envs.data.usable_rows import row_name, usable_rows
from truing.envs.optional_packages import import_optional
from truing.envs.tools import ToolEpisode
from truing.errors import DataError, RecipeError
from truing.rewards import Rewards, number_match, plain_text, read_number, without_reasoning
from truing.types.message import ToolSpec
from truing.types.rollout import Rollout, Task

NEEDED = ("id", "prompt")
KNOWN = (*NEEDED, "answer")


class McpConfig(FrozenModel):
    """The server and the tasks."""

    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """The server as a program and its arguments; it communicates by standard input and output."""
    url: str | None = None
    """The server as an address of the streamable HTTP transport. Set this or `command`."""
    train: str
    """Tasks to train on: a .jsonl file of `{"id", "prompt"}`, with an optional "answer"."""
    eval: str
    """Tasks to evaluate on, in the same form."""
    per_episode: bool = False
    """Whether each episode has its own session: needed if tools change state that other calls read."""
    timeout: PositiveFloat = 30.0
    """Time limit of a call, in seconds."""
    start_timeout: PositiveFloat = 120.0
    """Time limit to start the server, in seconds: some are downloaded first."""
    system: str = ""
    """The system message; empty for none."""

    @model_validator(mode="after")
    def _one_server(self) -> "McpConfig":
        """Require exactly one server."""
        if (self.command is None) == (self.url is None):
            raise RecipeError(
                "[env] needs one MCP server",
                got=f"command {self.command}, url {self.url}",
                expected="either command or url",
            )
        return self


class Mcp:
    """Tasks in which the policy calls an MCP server's tools until it answers without calling one.

    ``exact`` compares that answer with the task's own, as a number if it is one. Tasks without an answer need
    your own reward.
    """

    Config = McpConfig
    rewards: Rewards

    def __init__(self, config: McpConfig) -> None:
        self.config = config
        self.rewards = {"exact": (_exact, 1.0)}
        self._lock = threading.Lock()
        self._shared = self._connect()
        self._tools = self._shared.tools()
        specs = tuple(tool.spec for tool in self._tools)
        train, evaluation = (
            usable_rows(
                read_rows(parse_spec(spec)),
                lambda row: _task(row, config.system, specs),
                name=row_name,
                key=lambda task: task.task_id,
            )
            for spec in (config.train, config.eval)
        )
        self._tasks: dict[Split, Sequence[Task]] = {"train": train.converted, "eval": evaluation.converted}
        self.notes: Sequence[str] = (*train.notes(), *evaluation.notes())

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split."""
        return self._tasks[split]

    def open(self, task: Task) -> Episode:
        """Return an episode with the server's tools."""
        if self.config.per_episode:
            return ToolEpisode(self._connect().tools())
        with self._lock:
            if not self._shared.alive:  # a dead server ends only its own episodes
                self._shared = self._connect()
                self._tools = self._shared.tools()
            return ToolEpisode(self._tools)

    def _connect(self) -> McpSession:
        """Return a new session."""
        config = self.config
        if config.url is not None:
            return McpSession(
                config.url, config.url, config.timeout, "mcp", start_seconds=config.start_timeout
            )
        mcp = import_optional("mcp", "mcp")
        program, *arguments = config.command
        server = mcp.StdioServerParameters(command=program, args=arguments)
        log = TemporaryFile("w+", errors="replace")  # noqa: SIM115 - open as long as the server runs
        transport = mcp.stdio_client(server, errlog=log)
        return McpSession(
            transport,
            " ".join(config.command),
            config.timeout,
            "mcp",
            log=log,
            start_seconds=config.start_timeout,
        )


def _task(row: Row, system: str, tools: tuple[ToolSpec, ...]) -> Task:
    """Return a row as a task."""
    values = row.values
    if not (set(NEEDED) <= set(values) <= set(KNOWN) and all(isinstance(v, str) for v in values.values())):
        raise DataError(
            f"{row.where} is no task",
            got=values,
            expected='texts: "id", "prompt", and optionally "answer"',
        )
    before = [{"role": "system", "content": system}] if system else []
    return Task(
        task_id=values["id"],
        family="mcp",
        messages=(*before, *read_row(values, row.where, ("prompt",), tools=None).messages),
        answer=values.get("answer"),
        tools=tools,
    )


def _exact(rollout: Rollout, task: Task) -> float:
    """Return 1.0 if the last message is the answer: as a number, or ignoring case, marks and articles."""
    if task.answer is None:
        raise DataError(
            f"task {task.task_id} has no answer to compare with",
            remedy="give every task an answer, or reward functions from Python: truing.train(…, rewards=…)",
        )
    if read_number(task.answer) is not None:
        return number_match(rollout.text, task.answer)
    return float(plain_text(without_reasoning(rollout.text)) == plain_text(task.answer))
