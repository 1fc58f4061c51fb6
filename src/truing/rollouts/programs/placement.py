"""Which conversation a call belongs to, and the ids that its answer is sampled from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from truing.chat import Chat, observe
from truing.rollouts.programs.call import RolloutCall
from truing.rollouts.programs.conversation import (
    ProgramConversation,
    Prompt,
    branched_prompt,
    new_prompt,
)
from truing.rollouts.programs.history import (
    Parsed,
    common_length,
    difference_of_histories,
    differences,
    opening,
    with_names_of_calls,
)
from truing.types.message import Message
from truing.types.model_call import ModelCall
from truing.types.rollout import Task


@dataclass(frozen=True, eq=False)
class Placement:
    """Where a call goes: an earlier conversation, or a new one of a task with the call's messages."""

    prompt: Prompt
    notes: dict[str, Any]
    first: bool  # the conversation of the program's first call, or one that was made from its history
    task: Task
    conversation: ProgramConversation | None = None  # that it continues
    branch_of: ProgramConversation | None = None
    continues: RolloutCall | None = None


def place(
    chat: Chat, task: Task, earlier: Sequence[RolloutCall], call: ModelCall, asked: tuple[Parsed, ...]
) -> Placement:
    """Return where a call goes.

    Args:
        chat: of the model.
        task: of the rollout.
        earlier: the calls before it.
        call: the call.
        asked: its messages, as they are compared.
    """
    answered = _continued(earlier, call, asked)
    return (
        _new(chat, task, earlier, call, asked) if answered is None else _after(chat, earlier, answered, call)
    )


def _continued(
    earlier: Sequence[RolloutCall], call: ModelCall, asked: tuple[Parsed, ...]
) -> RolloutCall | None:
    """Return the answered call whose history a call extends: the longest, one not continued before others."""
    extended = [
        each
        for each in earlier
        if each.history
        and len(each.history) < len(asked)
        and asked[: len(each.history)] == each.history
        and each.call.tools == call.tools
    ]
    return max(
        extended, key=lambda each: (len(each.history), not each.continued_by, -each.number), default=None
    )


def _after(chat: Chat, earlier: Sequence[RolloutCall], answered: RolloutCall, call: ModelCall) -> Placement:
    """Return the place of a call that extends an answered one."""
    before, dialogue, known = answered.conversation, answered.dialogue, len(answered.history)
    assert dialogue is not None
    replies = with_names_of_calls(call.messages[known:], call.messages[known - 1], dialogue.messages[-1])
    notes: dict[str, Any] = {"continues": answered.number}
    if written := _written_differently(dialogue.messages, call.messages, chat.tool_format):
        notes["written_differently"] = written
    if not answered.continued_by:
        prompt = observe(chat, dialogue, replies)
        return Placement(prompt, notes, before.first, before.task, conversation=before, continues=answered)
    reason = f"calls {answered.continued_by} and {len(earlier) + 1} both continue call {answered.number}"
    assert answered.turn is not None
    turns = before.turns[: before.turns.index(answered.turn) + 1]
    prompt = branched_prompt(chat, dialogue, turns, replies, reason)
    notes["restart"] = reason
    return Placement(prompt, notes, before.first, before.task, branch_of=before, continues=answered)


def _written_differently(ours: Sequence[Message], given: Sequence[Message], tool_format: str) -> list[str]:
    """Return in which parts a client has written the policy's messages in another way."""
    pairs = zip(ours, given, strict=False)
    found = {
        part
        for mine, theirs in pairs
        if mine["role"] == "assistant"
        for part in differences(mine, theirs, tool_format)
    }
    return sorted(found)


def _new(
    chat: Chat, task: Task, earlier: Sequence[RolloutCall], call: ModelCall, asked: tuple[Parsed, ...]
) -> Placement:
    """Return the place of a call that begins a conversation: the first, an edited history, one of its own."""
    reason, first = "", True
    if earlier:
        like = max(earlier, key=lambda each: common_length(each.asked, asked))
        edited = common_length(like.asked, asked) >= opening(asked)
        first = edited and like.conversation.first
        reason = f"call {len(earlier) + 1} " + (
            _edit(like, call, asked) if edited else "begins a conversation of its own"
        )
    own_task, prompt = new_prompt(chat, task, call, reason)
    return Placement(prompt, {"restart": reason} if reason else {}, first, own_task)


def _edit(like: RolloutCall, call: ModelCall, asked: tuple[Parsed, ...]) -> str:
    """Return how a call differs from an earlier one that begins alike."""
    if like.call.tools != call.tools:
        return f"has other tools than call {like.number}"
    if like.asked == asked:
        return f"asks the same as call {like.number}"
    how = difference_of_histories(like.history or like.asked, asked)
    return f"edits the history of call {like.number}: {how}"
