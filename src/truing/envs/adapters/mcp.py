"""The tools of MCP servers, with tasks from own rows."""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from tempfile import TemporaryFile
from typing import Annotated

from pydantic import Field

from truing.config import FrozenModel, PositiveFloat
from truing.envs.adapters.mcp_session import McpSession
from truing.envs.base import Episode, Split
from truing.envs.dataset.config import DatasetConfig
from truing.envs.dataset.env import Dataset
from truing.envs.optional_packages import import_optional
from truing.envs.tools import Tool, ToolEpisode
from truing.errors import DataError, RecipeError
from truing.types.message import ToolSpec
from truing.types.rollout import Task


class McpServer(FrozenModel):
    """One server: a program that is started, or an address."""

    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """The server as a program and its arguments; it communicates by standard input and output."""
    url: str | None = None
    """The server as an address of the streamable HTTP transport. Set this or `command`."""
    per_episode: bool = False
    """Whether each episode has its own session: needed if tools change state that other calls read."""
    timeout: PositiveFloat = 30.0
    """Time limit of a call, in seconds."""
    start_timeout: PositiveFloat = 120.0
    """Time limit to start the server, in seconds: some are downloaded first."""

    def contradictions(self) -> Iterator[str]:
        """Require a program or an address."""
        if (self.command is None) == (self.url is None):
            yield f"a server has either command or url, got command {self.command} and url {self.url}"


class McpConfig(DatasetConfig):
    """The servers, and the rows with the tasks: the keys of `name = "dataset"`."""

    servers: Annotated[dict[str, McpServer], Field(min_length=1)]
    """Name → table with `command` or `url`; the policy sees the tools of all of them."""


class Mcp:
    """Rows whose policy calls the tools of MCP servers until it answers without calling one."""

    Config = McpConfig

    def __init__(self, config: McpConfig) -> None:
        self.config = config
        rows = Dataset(config)  # before a server is started: its errors are quick
        self.rewards, self.notes = rows.rewards, rows.notes
        self._servers = {name: _Server(name, server) for name, server in config.servers.items()}
        specs = _joined({name: server.specs for name, server in self._servers.items()})
        self._tasks: dict[Split, Sequence[Task]] = {
            "train": [_with_tools(task, specs) for task in rows.tasks("train")],
            "eval": [_with_tools(task, specs) for task in rows.tasks("eval")],
        }

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks of a split."""
        return self._tasks[split]

    def open(self, task: Task) -> Episode:
        """Return an episode with the tools of all servers."""
        return ToolEpisode([tool for server in self._servers.values() for tool in server.tools()])


class _Server:
    """A server: the session that episodes share, or how to open one for each."""

    def __init__(self, name: str, config: McpServer) -> None:
        self._name, self._config = name, config
        self._lock = threading.Lock()
        self._session = self._connect()
        self._tools = self._session.tools()
        self.specs = tuple(tool.spec for tool in self._tools)

    def tools(self) -> Sequence[Tool]:
        """Return the tools of an episode."""
        if self._config.per_episode:
            return self._connect().tools()
        with self._lock:
            if not self._session.alive:  # a dead server ends only its own episodes
                self._session = self._connect()
                self._tools = self._session.tools()
            return self._tools

    def _connect(self) -> McpSession:
        """Return a new session."""
        config, limits = self._config, (self._config.timeout, "mcp")
        if config.command is None:
            name = f"{self._name} ({config.url})"
            return McpSession(config.url, name, *limits, start_seconds=config.start_timeout)
        mcp = import_optional("mcp", "mcp")
        program, *arguments = config.command
        log = TemporaryFile("w+", errors="replace")  # noqa: SIM115 - open as long as the server runs
        transport = mcp.stdio_client(mcp.StdioServerParameters(command=program, args=arguments), errlog=log)
        name = f"{self._name} ({' '.join(config.command)})"
        return McpSession(transport, name, *limits, log=log, start_seconds=config.start_timeout)


def _joined(specs: Mapping[str, Sequence[ToolSpec]]) -> tuple[ToolSpec, ...]:
    """Return the tools of all servers; raise if two have one name."""
    together = tuple(spec for of_server in specs.values() for spec in of_server)
    twins = [name for name, count in Counter(spec.name for spec in together).items() if count > 1]
    if twins:
        owners = {
            twin: [server for server, own in specs.items() if any(spec.name == twin for spec in own)]
            for twin in twins
        }
        raise RecipeError(
            "two MCP servers have a tool of one name",
            got="; ".join(f"{twin} of {' and '.join(servers)}" for twin, servers in owners.items()),
            expected="names that tell all tools apart",
            remedy="leave out one of the servers, or start one so that its tools have other names",
        )
    return together


def _with_tools(task: Task, specs: tuple[ToolSpec, ...]) -> Task:
    """Return a row's task with the servers' tools; raise for a row with tools of its own."""
    if task.tools:
        raise DataError(
            f"task {task.task_id} has tools of its own, which no server runs",
            got=", ".join(spec.name for spec in task.tools),
            expected="rows without tools: the servers have them",
            remedy="remove the column from the rows; in Python, truing.train(…, tools=[…]) adds tools",
        )
    return replace(task, family="mcp", tools=specs)
