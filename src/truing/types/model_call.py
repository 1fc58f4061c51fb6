"""A call of a program to the model, and its reply, whichever API the program speaks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from truing.types.message import AssistantMessage, Message, ToolSpec
from truing.types.status import FinishReason


@dataclass(frozen=True)
class ModelCall:
    """What a program asks for: messages, tools, and how to sample."""

    messages: tuple[Message, ...]  # as ``envs/conversations`` reads them
    tools: tuple[ToolSpec, ...] = ()
    model: str = ""  # the name that it asks for; the policy answers whatever the name
    # what it asks of sampling, by OpenAI's names (``temperature``, ``top_p``, ``max_tokens``, ``stop``, …):
    # only what it sent, and nothing that cannot change an answer (``user``, ``metadata``, …)
    wanted: Mapping[str, Any] = field(default_factory=dict[str, Any])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])  # lower-case names, without the key
    retry: bool = False  # whether the client says that it sends the request again
    continues: str = ""  # the id of the reply that it names in place of the history before its messages
    instructions: int = 0  # messages at the beginning that hold for this call alone


@dataclass
class Said:
    """What an answer says: texts, names and arguments of calls, and whether it was cut."""

    reasoning: str = ""
    content: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    cut: bool = False
    readable: bool = True  # False: the bytes of an answer are no answer


@dataclass(frozen=True)
class WrittenAnswer:
    """An answer that a client got: the request as it came, and what the bytes say that were written."""

    reply_id: str
    call: ModelCall
    said: Said


@dataclass(frozen=True)
class ModelReply:
    """The policy's answer to a call."""

    id: str  # unique in the run
    message: AssistantMessage  # its reasoning apart from its content, and ids of its calls
    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
