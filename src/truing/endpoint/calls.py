"""What an API of the endpoint is: how its requests are read, and its replies and refusals written."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from truing.types.model_call import ModelCall, ModelReply


class CallRefused(Exception):
    """A call that gets no answer; ``status`` is the HTTP status, the text what the program's log shows."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Dialect(Protocol):
    """One API: how its requests are read and its replies written."""

    path: str  # such as /v1/chat/completions
    key_variable: str  # of the environment, from which its clients take the key

    def key(self, headers: Mapping[str, str]) -> str | None:
        """Return the key of a request, from its headers (lower-case names); None if it has none."""
        ...

    def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> ModelCall:
        """Return the call of a request's body.

        Raises:
            CallRefused: The body is not one of this API, or asks for what no text model does.
        """
        ...

    def reply(self, body: Mapping[str, Any], reply: ModelReply) -> Mapping[str, Any]:
        """Return the body of the answer to a request."""
        ...

    def events(self, body: Mapping[str, Any], reply: ModelReply) -> Iterator[str]:
        """Yield the server-sent events of a streamed answer."""
        ...

    def error(self, refused: CallRefused) -> Mapping[str, Any]:
        """Return the body of a refusal."""
        ...
