"""A call of a program to the model, and its reply, whichever API the program speaks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from truing.types.message import AssistantMessage, Message, ToolSpec
from truing.types.status import FinishReason


@dataclass(frozen=True)
class ModelCall:
    """What a program asks for: messages, tools, and how to sample."""

    messages: tuple[Message, ...]  # as ``envs/conversations`` reads them
    tools: tuple[ToolSpec, ...] = ()
    # what it asks of sampling, by OpenAI's names (``temperature``, ``top_p``, ``max_tokens``, ``stop``, …):
    # only what it sent, and nothing that cannot change an answer (``user``, ``metadata``, …)
    wanted: Mapping[str, Any] = field(default_factory=dict[str, Any])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])  # lower-case names, without the key
    retry: bool = False  # whether the client says that it sends the request again


@dataclass(frozen=True)
class ModelReply:
    """The policy's answer to a call."""

    id: str  # unique in the run
    message: AssistantMessage  # its reasoning apart from its content, and ids of its calls
    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int


class CallRefused(Exception):
    """A call that gets no answer; ``status`` is the HTTP status, the text what the program's log shows."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Dialect(Protocol):
    """One API: how its requests are read and its replies written."""

    path: str  # such as /v1/chat/completions

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
