"""HTTP requests whose time and size are bounded as a whole.

The limits of HTTP clients are for each read, so a server that sends a byte a second outlives them.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from ssl import SSLContext
from typing import Any, NamedTuple

import httpx2
from anyio import fail_after
from anyio.from_thread import start_blocking_portal

LARGEST = 16 * 2**20
"""Bytes of an answer, after it is decompressed."""


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    body: bytes
    content_type: str  # empty without one
    retry_after: str = ""  # the header, empty without one

    def text(self, characters: int) -> str:
        """Return the beginning of the body as text."""
        return self.body[: 4 * characters].decode(errors="replace")[:characters]


class Connections:
    """Connections to one server, which stay open between requests of any threads.

    Args:
        url: the address that paths are appended to.
        most: connections at a time; further requests wait for one within their own limit.
        largest: bytes of an answer, after it is decompressed.
    """

    def __init__(self, url: str, most: int, largest: int = LARGEST) -> None:
        self._stack, self._largest = ExitStack(), largest
        self._portal = portal = self._stack.enter_context(start_blocking_portal(name=f"http {url}"))
        limits = httpx2.Limits(max_connections=most, max_keepalive_connections=most)
        self._client = httpx2.AsyncClient(base_url=url, timeout=None, limits=limits, verify=_certificates())
        self._stack.callback(portal.call, portal.stop, True)
        self._stack.callback(portal.call, self._client.aclose)

    def request(self, method: str, path: str, timeout: float, **options: Any) -> Answer:
        """Send a request and return its answer; arguments and errors are those of ``request``."""
        with _named(timeout):
            return self._portal.call(_answer, self._client, method, path, timeout, self._largest, options)

    def close(self) -> None:
        """Close the connections, and end requests that have no answer yet."""
        self._stack.close()


def request(method: str, url: str, timeout: float, **options: Any) -> Answer:
    """Send a request and return its answer.

    Args:
        method: such as "POST".
        url: the address.
        timeout: seconds from the connection to the last byte.
        options: of ``httpx2.AsyncClient.stream``, such as ``json`` and ``headers``.

    Raises:
        TimeoutError: the answer is not complete in time.
        ConnectionError: the server cannot be reached, or breaks the connection.
        ValueError: the answer is larger than LARGEST, or the address is none.
    """
    with _named(timeout), start_blocking_portal() as portal:
        return portal.call(_once, method, url, timeout, options)


async def _once(method: str, url: str, timeout: float, options: dict[str, Any]) -> Answer:
    async with httpx2.AsyncClient(timeout=None, verify=_certificates()) as client:
        return await _answer(client, method, url, timeout, LARGEST, options)


@cache
def _certificates() -> SSLContext:
    """Return the certificates that are trusted: to read them takes as long as a request."""
    return httpx2.create_ssl_context()


async def _answer(
    client: httpx2.AsyncClient, method: str, url: str, timeout: float, largest: int, options: dict[str, Any]
) -> Answer:
    body = bytearray()
    with fail_after(timeout):
        async with client.stream(method, url, **options) as response:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > largest:
                    raise ValueError(f"an answer of more than {largest // 2**20} MiB")
            kind, retry_after = (response.headers.get(name, "") for name in ("content-type", "retry-after"))
            return Answer(response.status_code, bytes(body), kind, retry_after)


@contextmanager
def _named(timeout: float) -> Iterator[None]:
    """Raise errors of the client as those of Python."""
    try:
        yield
    except TimeoutError as error:
        raise TimeoutError(f"no complete answer within {timeout:g} s") from error
    except httpx2.RequestError as error:
        raise ConnectionError(f"{type(error).__name__}: {error}") from error
    except httpx2.InvalidURL as error:
        raise ValueError(f"no address: {error}") from error
