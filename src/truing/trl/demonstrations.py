"""Rows of an SFT data set as tasks with demonstrations."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from truing.errors import DataError
from truing.rewards import Rewards
from truing.trl.data import Row, check_column, is_conversation, messages_of
from truing.types.message import AssistantMessage, Message, ToolCall, ToolSpec
from truing.types.rollout import Task


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
    """A task per row: the messages before the first trained turn, and the turns as a demonstration."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rewards: Rewards = {}
        self.notes: Sequence[str] = ()
        self._tasks: list[Task] = []
        self._replies: dict[str, list[list[Message]]] = {}
        for index, row in enumerate(rows):
            name = f"train-{index}"
            context, turns, self._replies[name] = _split(index, row)
            specs = tuple(map(_tool_spec, row.get("tools") or ()))
            self._tasks.append(Task(name, "trl", context, demonstration=turns, tools=specs))

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks; there are none for evaluation."""
        return self._tasks if split == "train" else []

    def open(self, task: Task) -> ScriptedEpisode:
        """Return an episode that continues the conversation of a task."""
        return ScriptedEpisode(self._replies[task.task_id])


def is_plain_text(rows: Sequence[Row], column: str) -> bool:
    """Whether rows are plain text in a column; prompts and messages come first, as in TRL."""
    if {"prompt", "messages"} & rows[0].keys() or column not in rows[0]:
        return False
    if check_column(rows, column, "train_dataset"):
        raise DataError(
            f"{column!r} of train_dataset has messages",
            expected="text",
            remedy=f"dataset.rename_column({column!r}, 'messages')",
        )
    return True


def most_turns(rows: Sequence[Row]) -> int:
    """Return the most turns of the assistant in a row; 1 for text, and at least 1."""
    return max(
        1,
        *(
            sum(message["role"] == "assistant" for message in row["messages"])
            if "messages" in row
            else sum(message["role"] == "assistant" for message in row["completion"])
            if is_conversation(row.get("completion"))
            else 1
            for row in rows
        ),
    )


def check_rows(rows: Sequence[Row], assistant_only_loss: bool, completion_only_loss: bool | None) -> bool:
    """Return whether the rows are text rather than messages; raise if they are no demonstrations."""
    columns = rows[0].keys()
    if "messages" in columns:
        if not assistant_only_loss:
            raise DataError(
                "rows of messages train on every token in TRL's default, prompts too",
                got="assistant_only_loss=False",
                expected="a loss on what the assistant says: Truing trains on demonstrations",
                remedy="set assistant_only_loss=True",
            )
        check_column(rows, "messages", "train_dataset")
        return False
    if not {"prompt", "completion"} <= columns:
        raise DataError(
            "the rows of train_dataset are no demonstrations",
            got=f"columns {', '.join(columns)}",
            expected="prompt and completion, or messages, or text",
            remedy=_row_remedy(columns),
        )
    if completion_only_loss is False:
        raise DataError(
            "completion_only_loss=False trains on prompts, too",
            expected="a loss on completions: Truing trains on demonstrations",
            remedy="leave it out",
        )
    kinds = {column: check_column(rows, column, "train_dataset") for column in ("prompt", "completion")}
    if len(set(kinds.values())) > 1:
        raise DataError("one of prompt and completion is text, and the other one messages")
    return not kinds["prompt"]


def _row_remedy(columns: Collection[str]) -> str:
    """Return how to make demonstrations of other columns."""
    if "conversations" in columns:
        return "dataset.map(trl.maybe_convert_to_chatml) makes messages of conversations"
    if "output" in columns:
        return 'dataset.map(lambda row: {"prompt": row["instruction"], "completion": row["output"]})'
    return "set dataset_text_field to the column with text, or map rows to prompt and completion"


def conversation(row: Row) -> tuple[Message, ...]:
    """Return all messages of a row."""
    if "messages" in row:
        return messages_of(row["messages"])
    completion = row["completion"]
    if is_conversation(completion):
        return (*messages_of(row["prompt"]), *messages_of(completion))
    return (*messages_of(row["prompt"]), {"role": "assistant", "content": completion})


def _split(
    index: int, row: Row
) -> tuple[tuple[Message, ...], tuple[AssistantMessage, ...], list[list[Message]]]:
    """Return the messages before the first trained turn, the turns, and the messages between them."""
    messages = conversation(row)
    start = 0 if "messages" in row else len(messages_of(row["prompt"]))
    first = next((i for i, m in enumerate(messages) if i >= start and m["role"] == "assistant"), None)
    if not first or messages[-1]["role"] != "assistant":
        raise DataError(
            f"row {index} of train_dataset does not end with a turn of the assistant that answers something",
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
