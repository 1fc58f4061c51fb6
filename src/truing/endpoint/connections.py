"""The connections of the endpoint: so many that the trainer keeps files to open, each with a request soon."""

import asyncio
import resource
import socket
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS = 2048
"""Connections that may be open, and as many that wait to be accepted."""

AT_ONCE = 64
"""Connections that are accepted before any is looked at."""

SILENT_SECONDS = 60.0
"""Seconds in which a new connection must send the headers of a request."""

REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Connection(H11Protocol):
    """A connection; one more than there may be is refused, and one that asks nothing is closed."""

    _silent: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take or refuse a connection."""
        super().connection_made(transport)
        if len(self.connections) > most_connections():
            transport.write(REFUSAL)
            transport.abort()
            return
        self._silent = self.loop.call_later(SILENT_SECONDS, self._close_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        if self._silent is not None:
            self._silent.cancel()
        super().connection_lost(exc)

    def _close_if_silent(self) -> None:
        if self.cycle is None:
            self.transport.abort()


class Server(uvicorn.Server):
    """A server of such connections."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; asyncio lets only so many connections wait as it accepts at once."""
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(CONNECTIONS)


def most_connections() -> int:
    """Return how many connections may be open: a half of the files, at most, that this process may open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return CONNECTIONS if soft == resource.RLIM_INFINITY else min(CONNECTIONS, soft // 2)


def allow_connections() -> None:
    """Let this process open enough files for all connections, as far as the system permits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * CONNECTIONS if hard == resource.RLIM_INFINITY else min(4 * CONNECTIONS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # a system may have a lower limit than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def show_unless_full(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Show an error of an event loop; that no connection can be accepted now comes again without end."""
    if "out of system resource" not in context["message"]:
        loop.default_exception_handler(context)
