"""A call of a rollout, from its request to its delivered answer."""

from dataclasses import dataclass, field, replace
from typing import Any

from truing.chat import Chat, Dialogue
from truing.chat.reasoning import split_reasoning
from truing.engines.base import Completion
from truing.rollouts.call_queue import PendingCall
from truing.rollouts.programs.conversation import ProgramConversation
from truing.rollouts.programs.history import Parsed, parsed
from truing.types.message import AssistantMessage, ToolCall
from truing.types.model_call import ModelCall, ModelReply
from truing.types.rollout import Turn


@dataclass(eq=False)
class RolloutCall:
    """What a program asked, the conversation that answers it, and the answer when it is there."""

    number: int  # in the rollout, from 1
    call: ModelCall
    conversation: ProgramConversation
    prompt_length: int  # ids
    asked: tuple[Parsed, ...]
    notes: dict[str, Any]  # for the record: which call it continues, what a client wrote differently
    waiting: list[PendingCall] = field(default_factory=list[PendingCall])  # several if it was sent again
    history: tuple[Parsed, ...] = ()  # with the answer; empty while it is sampled
    dialogue: Dialogue | None = None  # with the answer
    turn: Turn | None = None
    text: str = ""  # of the turn
    reply: ModelReply | None = None
    given: bool = False  # whether a client waited for the reply
    continued_by: int = 0  # the number of the first call that continues it

    @property
    def is_awaited(self) -> bool:
        """Whether a client waits for the answer."""
        return any(not pending.answer.cancelled() for pending in self.waiting)

    def set_answer(self, chat: Chat, completion: Completion, reply_id: str) -> None:
        """Append the turn to the conversation, and give its message to the clients that wait."""
        conversation = self.conversation
        conversation.add_turn(chat, completion)
        turn = replace(conversation.turns[-1], call=self.number)
        conversation.turns[-1] = self.turn = turn
        self.text = conversation.text
        self.dialogue = conversation.dialogue
        answer = conversation.dialogue.messages[-1]
        self.history = (*self.asked, parsed(answer, chat.tool_format))
        shown = split_reasoning([answer], chat.tool_format)[0]
        reasoning = shown.get("reasoning_content", "")
        self.reply = ModelReply(
            id=reply_id,
            message=AssistantMessage(shown["content"], self._calls(), reasoning=reasoning),
            finish_reason=turn.finish_reason,
            prompt_tokens=self.prompt_length,
            completion_tokens=len(completion.token_ids),
        )
        self.deliver()

    def _calls(self) -> tuple[ToolCall, ...]:
        """Return the calls of the answer, without ids that the policy wrote before: clients refuse those."""
        seen = {call["id"] for message in self.call.messages for call in message.get("tool_calls", ())}
        calls: list[ToolCall] = []
        for call in self.conversation.last_message.calls:
            calls.append(replace(call, id=None) if call.id in seen else call)
            seen.add(call.id)
        return tuple(calls)

    def deliver(self) -> None:
        """Give the reply to every client that waits; one that has gone away does not get it."""
        assert self.reply is not None
        for pending in self.waiting:
            self.given |= pending.give(self.reply)
        self.waiting = []
