"""One HTTP request whose time and size are bounded as a whole."""

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

    def text(self, characters: int) -> str:
        """Return the beginning of the body as text."""
        return self.body[: 4 * characters].decode(errors="replace")[:characters]


def request(method: str, url: str, timeout: float, **options: Any) -> Answer:
    """Send a request and return its answer.

    Args:
        method: such as "POST".
        url: the address.
        timeout: seconds from the connection to the last byte. The limits of HTTP clients are for each read,
            so a server that sends a byte a second outlives them.
        options: of ``httpx2.AsyncClient.stream``, such as ``json`` and ``headers``.

    Raises:
        TimeoutError: the answer is not complete in time.
        ConnectionError: the server cannot be reached, or breaks the connection.
        ValueError: the answer is larger than LARGEST, or the address is none.
    """
    try:
        with start_blocking_portal() as portal:
            return portal.call(_request, method, url, timeout, options)
    except TimeoutError as error:
        raise TimeoutError(f"no complete answer within {timeout:g} s") from error
    except httpx2.RequestError as error:
        raise ConnectionError(f"{type(error).__name__}: {error}") from error
    except httpx2.InvalidURL as error:
        raise ValueError(f"no address: {error}") from error


async def _request(method: str, url: str, timeout: float, options: dict[str, Any]) -> Answer:
    body = bytearray()
    with fail_after(timeout):
        async with (
            httpx2.AsyncClient(timeout=None) as client,
            client.stream(method, url, **options) as response,
        ):
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > LARGEST:
                    raise ValueError(f"an answer of more than {LARGEST // 2**20} MiB")
            return Answer(response.status_code, bytes(body))
