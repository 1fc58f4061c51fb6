"""Rows of an SFT data set as tasks with demonstrations: of turns of the assistant, or of whole texts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from truing.envs.base import Split
from truing.envs.conversations import Conversation, row_notes
from truing.errors import DataError
from truing.rewards import Rewards
from truing.types.message import AssistantMessage, Message
from truing.types.rollout import DemonstratedText, Task

OPENS_UNASKED = "a first message of the assistant is context: an answer is trained, and nothing precedes it"
ENDS_UNANSWERED = "messages behind the last trained turn are not trained, and change nothing"


class ScriptedEpisode:
    """The messages of a conversation between its trained turns."""

    def __init__(self, replies: Sequence[Sequence[Message]]) -> None:
        self._replies = iter(replies)

    def reply(self, message: AssistantMessage) -> Sequence[Message]:
        """Return the messages before the next turn; none after the last one."""
        return next(self._replies, ())

    def outcome(self) -> Mapping[str, Any]:
        """Return nothing: a demonstration is not judged."""
        return {}


class DemonstratedTurns(NamedTuple):
    """A conversation as a demonstration."""

    prompt: tuple[Message, ...]
    turns: tuple[AssistantMessage, ...]
    replies: tuple[tuple[Message, ...], ...]  # the messages between two turns
    remarks: tuple[str, ...]  # on what is not trained


class DemonstrationsEnv:
    """A task per row, with its demonstration."""

    def __init__(self) -> None:
        self.rewards: Rewards = {}
        self.notes: Sequence[str] = ()
        self._tasks: dict[Split, list[Task]] = {"train": [], "eval": []}
        self._replies: dict[str, Sequence[Sequence[Message]]] = {}

    def add_turns(self, split: Split, conversations: Iterable[Conversation], dataset: str, end: str) -> None:
        """Add rows: the messages before the first trained turn are the prompt.

        Args:
            split: of the rows.
            conversations: of messages, or of a prompt and a completion that are text.
            dataset: name of the data set, for notes.
            end: the text that ends a completion of text, which may have it already.
        """
        noted: list[Conversation] = []
        for index, each in enumerate(conversations):
            name = f"{split}-{index}"
            prompt, turns, self._replies[name], remarks = demonstrated_turns(each)
            noted.append(replace(each, remarks=remarks))
            if each.is_text:
                turns = tuple(replace(turn, content=turn.content.removesuffix(end)) for turn in turns)
            task = Task(
                name,
                "trl",
                prompt,
                demonstration=turns,
                tools=each.tools,
                template_kwargs=each.template_kwargs,
                where=each.where,
            )
            self._tasks[split].append(task)
        self.notes = [*self.notes, *row_notes(noted, dataset)]

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


def demonstrated_turns(conversation: Conversation) -> DemonstratedTurns:
    """Return the turns that are trained: the assistant's behind the prompt, but those marked otherwise."""
    messages, unmarked = conversation.messages, conversation.noting_marks(trained := _trained(conversation))
    if not trained:
        raise DataError(
            f"{conversation.where} has no turn of the assistant to train",
            got=", ".join(
                message["role"] + " (marked as not to be trained)" * (i in conversation.untrained)
                for i, message in enumerate(messages)
            ),
            expected="a turn of the assistant that follows another message, as in user, assistant",
            remedy="leave the row out: dataset.filter",
        )
    remarks = [*unmarked.remarks]
    if messages[0]["role"] == "assistant" and not conversation.untrained & {0}:
        remarks.append(OPENS_UNASKED)
    if trained[-1] + 1 < len(messages):
        remarks.append(ENDS_UNANSWERED)
    return DemonstratedTurns(
        messages[: trained[0]],
        tuple(AssistantMessage.of(messages[i]) for i in trained),
        tuple(messages[a + 1 : b] for a, b in pairwise(trained)),
        tuple(remarks),
    )


def _trained(conversation: Conversation) -> list[int]:
    """Return which messages are trained turns."""
    return [
        i
        for i, message in enumerate(conversation.messages)
        if i >= max(1, conversation.prompt_length)
        and message["role"] == "assistant"
        and i not in conversation.untrained
    ]
