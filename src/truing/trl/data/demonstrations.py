"""Rows of an SFT data set as tasks with demonstrations: of turns of the assistant, or of whole texts."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from truing.envs.base import Split
from truing.errors import DataError
from truing.rewards import Rewards
from truing.trl.data.rows import Row, is_conversation, messages_of
from truing.types.message import AssistantMessage, Message, ToolCall, ToolSpec
from truing.types.rollout import DemonstratedText, Task


class ScriptedEpisode:
    """The messages of a conversation between its turns of the assistant."""

    def __init__(self, replies: Sequence[Sequence[Message]]) -> None:
        self._replies = iter(replies)

    def reply(self, message: AssistantMessage) -> Sequence[Message]:
        """Return the messages before the next turn; none after the last one."""
        return next(self._replies, ())

    def outcome(self) -> Mapping[str, Any]:
        """Return nothing: a demonstration is not judged."""
        return {}


class DemonstrationsEnv:
    """A task per row, with its demonstration."""

    def __init__(self) -> None:
        self.rewards: Rewards = {}
        self.notes: list[str] = []
        self._tasks: dict[Split, list[Task]] = {"train": [], "eval": []}
        self._replies: dict[str, list[list[Message]]] = {}

    def add_turns(self, split: Split, rows: Iterable[Row]) -> None:
        """Add rows of messages: those before the first trained turn are the prompt."""
        for index, row in enumerate(rows):
            name = f"{split}-{index}"
            context, turns, self._replies[name] = _split(index, row, f"{split}_dataset")
            specs = tuple(map(_tool_spec, row.get("tools") or ()))
            self._tasks[split].append(Task(name, "trl", context, demonstration=turns, tools=specs))

    def add_texts(self, split: Split, texts: Iterable[DemonstratedText], tokenizer: Any) -> None:
        """Add whole texts; the record shows each as one message."""
        for index, text in enumerate(texts):
            shown: Message = {"role": "text", "content": tokenizer.decode(text.token_ids)}
            self._tasks[split].append(Task(f"{split}-{index}", "trl", (shown,), demonstration=text))

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return the tasks."""
        return self._tasks[split]

    def open(self, task: Task) -> ScriptedEpisode:
        """Return an episode that continues the conversation of a task."""
        return ScriptedEpisode(self._replies.get(task.task_id, ()))


def most_turns(rows: Iterable[Row]) -> int:
    """Return the most turns of the assistant in a row; 1 for text, and at least 1."""
    spoken = (row.get("messages", row.get("completion")) for row in rows)
    return max(
        1,
        *(
            sum(message["role"] == "assistant" for message in messages) if is_conversation(messages) else 1
            for messages in spoken
        ),
    )


def conversation(row: Row) -> tuple[Message, ...]:
    """Return all messages of a row."""
    if "messages" in row:
        return messages_of(row["messages"])
    completion = row["completion"]
    if is_conversation(completion):
        return (*messages_of(row["prompt"]), *messages_of(completion))
    return (*messages_of(row["prompt"]), {"role": "assistant", "content": completion})


def _split(
    index: int, row: Row, dataset: str
) -> tuple[tuple[Message, ...], tuple[AssistantMessage, ...], list[list[Message]]]:
    """Return the messages before the first trained turn, the turns, and the messages between them."""
    messages = conversation(row)
    start = 0 if "messages" in row else len(messages_of(row["prompt"]))
    first = next((i for i, m in enumerate(messages) if i >= start and m["role"] == "assistant"), None)
    if not first or messages[-1]["role"] != "assistant":
        raise DataError(
            f"row {index} of {dataset} does not end with a turn of the assistant that answers something",
            got=[message["role"] for message in messages],
            expected="messages such as user, assistant, user, assistant",
        )
    turns, replies = [_turn(messages[first])], []
    between: list[Message] = []
    for message in messages[first + 1 :]:
        if message["role"] == "assistant":
            turns.append(_turn(message))
            replies.append(between)
            between = []
        else:
            between.append(message)
    return messages[:first], tuple(turns), replies


def _turn(message: Message) -> AssistantMessage:
    calls = [call.get("function", call) for call in message.get("tool_calls") or ()]
    return AssistantMessage(
        message.get("content") or "",
        tuple(ToolCall(call["name"], _arguments(call["arguments"])) for call in calls),
    )


def _arguments(arguments: Any) -> Mapping[str, Any]:
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def _tool_spec(schema: Any) -> ToolSpec:
    function = (json.loads(schema) if isinstance(schema, str) else schema).get("function", schema)
    return ToolSpec(function["name"], function.get("description", ""), function.get("parameters", {}))
