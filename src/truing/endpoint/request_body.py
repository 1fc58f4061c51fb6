"""The body of a request: read within bounds of size, memory and time."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from starlette.types import Receive

from truing.endpoint.calls import CallRefused
from truing.utils.parse import parse_json

MAX_BODY = 16 * 2**20
"""Bytes of a request."""

MAX_OF_KEY, MAX_OF_ALL = 4 * MAX_BODY, 16 * MAX_BODY
"""Bytes of requests that have no answer yet: of one program, and of all."""

ARRIVAL_SECONDS = 180.0
"""Seconds in which a request must arrive."""

BUSY = "requests without an answer hold too many bytes: wait for the answers, then try again"
LATE = 408
"""The status of a request that has not arrived in that time."""


class RequestBody:
    """A body, whose bytes count to its key until it is closed; without a key nothing of it is kept."""

    def __init__(self, key: str | None, held: Counter[str]) -> None:
        """Describe a body.

        Args:
            key: of its request.
            held: bytes of all open bodies by key.
        """
        self._key, self._held, self._bytes, self._refused = key, held, bytearray(), False

    async def read(self, receive: Receive) -> bytes | None:
        """Return the body; None if the client goes away before its end.

        Raises:
            CallRefused: It is too long, too slow, or there are too many. It is read to its end nevertheless,
                since a client that still writes would not see the refusal.
        """
        length, more = 0, True
        try:
            async with asyncio.timeout(ARRIVAL_SECONDS):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    part, more = message.get("body", b""), message.get("more_body", False)
                    length += len(part)
                    self._keep(part, length)
        except TimeoutError as error:
            raise CallRefused(LATE, f"the request did not arrive within {ARRIVAL_SECONDS:g} s") from error
        if length > MAX_BODY:
            raise CallRefused(413, f"the request has {length} bytes; the endpoint takes at most {MAX_BODY}")
        if self._refused:
            raise CallRefused(503, BUSY)
        return bytes(self._bytes)

    def close(self) -> None:
        """Count its bytes no longer."""
        if self._key is not None:
            self._held[self._key] -= len(self._bytes)
            self._held += Counter()  # forgets keys without bytes
        self._bytes = bytearray()

    def _keep(self, part: bytes, length: int) -> None:
        """Keep a part, unless too much is held already."""
        if self._key is None or self._refused:
            return
        size, own = len(part), self._held[self._key]
        if length > MAX_BODY or own + size > MAX_OF_KEY or self._held.total() + size > MAX_OF_ALL:
            self._refused = True
            self.close()
            return
        self._bytes += part
        self._held[self._key] += size


def parse_body(data: bytes) -> Mapping[str, Any]:
    """Return the object of a body.

    Raises:
        CallRefused: It is not JSON, or no object.
    """
    try:
        body = parse_json(data, finite=True)
    except ValueError as error:
        raise CallRefused(400, f"the body of the request is not JSON: {error}") from error
    if not isinstance(body, Mapping):
        raise CallRefused(400, f"the body of the request is not a JSON object but {type(body).__name__}")
    return body
