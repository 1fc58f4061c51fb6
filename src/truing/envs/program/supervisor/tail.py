"""The end of an output that may be endless. Only the supervisor imports this file."""


class Tail:
    """The last bytes of a stream."""

    def __init__(self, most: int) -> None:
        self._most, self._bytes = most, bytearray()

    def add(self, part: bytes) -> None:
        """Append what was read."""
        self._bytes += part
        if len(self._bytes) > 2 * self._most:
            del self._bytes[: -self._most]

    def text(self) -> str:
        """Return the end as text."""
        return bytes(self._bytes[-self._most :]).decode("utf-8", errors="replace")
