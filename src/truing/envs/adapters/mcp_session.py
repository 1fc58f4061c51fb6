"""Sessions with MCP servers, in one background thread, usable from any other."""

import asyncio
import atexit
import json
import logging
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import cache, partial
from typing import Any, TextIO, TypeVar

from truing.envs.adapters.schema import validated_schema
from truing.envs.optional_packages import import_optional
from truing.envs.tools import Tool, ToolError
from truing.errors import DataError, TruingError
from truing.types.message import ToolSpec

T = TypeVar("T")

START_TIMEOUT = 120.0
"""Time limit to start a server, in seconds, unless a recipe says otherwise: some are downloaded first."""

CLOSE_TIMEOUT = 10.0
"""Time limit to stop all servers at exit, in seconds."""

MAX_TOOLS = 1000
"""Tools of a server; a prompt has all of them."""

LOG_CHARACTERS = 500
"""Characters of a server's own errors in an error message: the last ones."""

CANCEL_GRACE = 1.0
"""Seconds after its time limit in which work is cancelled, unless it blocks its loop."""

_sessions: dict[Future[None], Callable[[], object]] = {}
"""The open sessions, and the function that closes each."""


logging.getLogger("mcp.client.stdio").setLevel(logging.CRITICAL)  # a traceback per line that is not JSON


@atexit.register
def _close_all() -> None:
    """Close the open sessions: their thread is a daemon, and their servers would outlive it."""
    for close in list(_sessions.values()):
        close()
    wait(list(_sessions), CLOSE_TIMEOUT)


def loop_in_new_thread() -> asyncio.AbstractEventLoop:
    """An event loop in its own thread, for work that may block it; both end when it is stopped."""
    loop = asyncio.new_event_loop()

    def serve() -> None:
        loop.run_forever()
        loop.close()

    threading.Thread(target=serve, name="truing-adapters", daemon=True).start()
    return loop


@cache
def shared_loop() -> asyncio.AbstractEventLoop:
    """The one event loop of sessions with other processes; a session is bound to its loop."""
    return loop_in_new_thread()


def run_coroutine(
    work: Coroutine[Any, Any, T], seconds: float, loop: asyncio.AbstractEventLoop | None = None
) -> T:
    """Return the result of asynchronous work; cancel it after the time limit.

    Raises:
        TimeoutError: It took longer, or it blocks its loop and cannot be cancelled.
    """
    timed = asyncio.wait_for(work, seconds)
    return asyncio.run_coroutine_threadsafe(timed, loop or shared_loop()).result(seconds + CANCEL_GRACE)


class McpSession:
    """A session with one MCP server, open from here until the object is dropped."""

    def __init__(
        self,
        server: Any,
        name: str,
        seconds: float,
        extra: str,
        loop: asyncio.AbstractEventLoop | None = None,
        log: TextIO | None = None,
        start_seconds: float = START_TIMEOUT,
    ) -> None:
        """Connect.

        Args:
            server: What ``mcp.Client`` takes: a URL, a transport or a server of this process.
            name: The server's name in errors.
            seconds: The time limit of a call.
            extra: The extra of Truing that installs the package ``mcp``.
            loop: Where a server of this process runs; it is stopped with the session.
            log: The file that a started server writes its errors to.
            start_seconds: The time limit until the server answers for the first time.

        Raises:
            TruingError: The server does not start, in time or at all.
        """
        self._mcp = import_optional("mcp", extra)
        self._name, self._seconds = name, seconds
        self._loop = loop or shared_loop()
        opened: Future[Any] = Future()
        closing = asyncio.Event()
        session = _hold_open(self._mcp.Client(server), opened, closing)
        ended = asyncio.run_coroutine_threadsafe(session, self._loop)
        close = partial(self._loop.call_soon_threadsafe, closing.set)
        _sessions[ended] = close
        ended.add_done_callback(_sessions.pop)
        if loop is not None:
            ended.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
        weakref.finalize(self, close)
        self.alive = True  # until a call finds the server gone
        wait((opened, ended), start_seconds, FIRST_COMPLETED)
        if not opened.done():
            cause = None if ended.cancel() else ended.exception()
            problem = repr(cause) if cause else f"no answer within {start_seconds:g} s"
            raise TruingError(
                f"the MCP server {name} cannot be reached",
                got=f"{problem}{_end_of(log)}",
                remedy="start the command by hand, or open the URL, and read its output; "
                "a slow server needs a larger start_timeout in its table of the recipe",
            ) from cause
        self._client = opened.result()

    def tools(self) -> list[Tool]:
        """Return the server's tools, with its own schemas; calling one calls the server.

        Raises:
            TruingError: The list has more than MAX_TOOLS, or is not complete in time.
        """
        try:
            return [self._tool(each) for each in run_coroutine(self._offered(), self._seconds, self._loop)]
        except TimeoutError as error:
            raise TruingError(
                f"the MCP server {self._name} does not list its tools", got=f"no end in {self._seconds:g} s"
            ) from error

    async def _offered(self) -> list[Any]:
        """Return what the server lists, page by page."""
        offered: list[Any] = []
        cursor = None
        while len(offered) <= MAX_TOOLS:
            page = await self._client.list_tools(cursor=cursor)
            offered += page.tools
            cursor = page.next_cursor
            if cursor is None:
                return offered
        raise TruingError(
            f"the MCP server {self._name} lists too many tools",
            got=f"more than {MAX_TOOLS}",
            expected="tools that fit into a prompt",
        )

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return a tool's answer.

        Raises:
            ToolError: The tool reports that the call is wrong or failed.
            TruingError: The server is gone, too slow, or answers with something other than text.
        """
        try:
            answer = run_coroutine(self._client.call_tool(name, dict(arguments)), self._seconds, self._loop)
        except self._mcp.MCPError as error:
            if error.code == self._mcp.types.INVALID_PARAMS:
                raise ToolError(error.message) from error
            self.alive = error.code != self._mcp.types.CONNECTION_CLOSED
            raise TruingError(
                f"the MCP server {self._name} failed at a call of {name}", got=error.message
            ) from error
        except TimeoutError as error:
            late = f"no answer within {self._seconds:g} s"
            raise TruingError(f"the MCP server {self._name} failed at a call of {name}", got=late) from error
        text = _text_of(name, answer)
        if answer.is_error:
            raise ToolError(text)
        return text

    def _tool(self, offered: Any) -> Tool:
        """Return one of the server's tools as a tool of Truing."""

        def call(**arguments: Any) -> str:
            return self.call(offered.name, arguments)

        schema = validated_schema(offered.input_schema, f"the MCP tool {offered.name}")
        return Tool(ToolSpec(offered.name, offered.description or "", schema), call)


def _end_of(log: TextIO | None) -> str:
    """Return the end of what a started server wrote to its errors, after a line break; empty for nothing."""
    if log is None:
        return ""
    log.seek(0)
    text = log.read().strip()
    return f"\n{text[-LOG_CHARACTERS:]}" if text else ""


def _text_of(name: str, answer: Any) -> str:
    """Return the text of an answer, or its structured content if it has no text."""
    others = sorted({block.type for block in answer.content} - {"text"})
    if others:
        raise DataError(f"the MCP tool {name} answered with what is not text", got=", ".join(others))
    if not answer.content and answer.structured_content is not None:
        return json.dumps(answer.structured_content, ensure_ascii=False)
    return "\n".join(block.text for block in answer.content)


async def _hold_open(client: Any, opened: Future[Any], closing: asyncio.Event) -> None:
    """Keep a session open; it must be entered and left in one task."""
    async with client:
        opened.set_result(client)
        await closing.wait()
