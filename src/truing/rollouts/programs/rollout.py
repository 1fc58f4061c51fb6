"""One rollout of a program: its calls become turns of conversations, and these one rollout."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from truing.chat import Dialogue, start_dialogue
from truing.chat.reasoning import split_reasoning
from truing.endpoint.calls import CallRefused
from truing.endpoint.wanted import check_wanted
from truing.engines.base import Completion
from truing.envs.program_env import CallRules
from truing.errors import DataError
from truing.rollouts.attempt import empty_turn
from truing.rollouts.call_queue import PendingCall, refuse
from truing.rollouts.episode_context import EpisodeContext
from truing.rollouts.programs.conversation import (
    ProgramConversation,
    Prompt,
    branched_prompt,
    continued_prompt,
    new_prompt,
)
from truing.rollouts.programs.history import (
    Parsed,
    common_length,
    difference_of_histories,
    differences,
    parsed,
    with_names_of_calls,
)
from truing.types.message import AssistantMessage, Message, hash_of_message, hash_of_outcome
from truing.types.model_call import ModelCall, ModelReply
from truing.types.rollout import Rollout, Task, Turn
from truing.types.status import EndedBy, FinishReason, Status


@dataclass(eq=False)
class RolloutCall:
    """A call of a rollout: what it asks, which conversation answers it, and the answer when it is there."""

    number: int  # from 1
    call: ModelCall
    conversation: ProgramConversation
    prompt_length: int  # ids
    waiting: list[PendingCall]  # one, or several where a client sent it again
    asked: tuple[Parsed, ...]
    history: tuple[Parsed, ...] = ()  # with the answer; empty while it is sampled
    dialogue: Dialogue | None = None  # with the answer
    turn: Turn | None = None
    reply: ModelReply | None = None
    continued_by: int = 0  # the number of the first call that continues it
    given: bool = False  # whether a client waited for the reply when it was there
    notes: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(eq=False)
class ProgramRollout:
    """A rollout whose turns are the calls of a program."""

    task: Task
    group_id: str
    index: int  # in its group
    key: tuple[object, ...]
    context: EpisodeContext
    rules: CallRules
    is_lost: Callable[[ModelReply], bool]  # whether no client has got a reply
    conversations: list[ProgramConversation] = field(default_factory=list[ProgramConversation])
    calls: list[RolloutCall] = field(default_factory=list[RolloutCall])
    refused: list[str] = field(default_factory=list[str])
    limit: EndedBy | None = None  # which limit refused a call
    error: str = ""
    outcome: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def name(self) -> str:
        """The id of the rollout."""
        return f"{self.group_id}/{self.index}"

    # calls

    def begin(self, pending: PendingCall) -> ProgramConversation | None:
        """Return the conversation whose next turn answers a call; None if no turn has to be sampled.

        A call that is refused is answered here, and so is one that was asked and answered before.
        """
        try:
            return self._begin(pending)
        except (CallRefused, DataError) as error:
            refused = error if isinstance(error, CallRefused) else CallRefused(400, str(error))
            self.refused.append(str(refused))
            refuse(pending, refused)
            return None

    def _begin(self, pending: PendingCall) -> ProgramConversation | None:
        call, tool_format = pending.call, self.context.chat.tool_format
        asked = tuple(parsed(message, tool_format) for message in call.messages)
        if (same := self._asked_before(call, asked)) is not None:
            same.waiting.append(pending)
            if same.reply is not None:
                _deliver(same)
            return None
        overridden = check_wanted(call.wanted, self.context.sampling_params, self.rules.override)
        if call.messages[-1]["role"] == "assistant":
            raise CallRefused(400, "the last message is the assistant's: an answer is not continued")
        if len(self.calls) >= self.rules.max_calls:
            self.limit = EndedBy.TURNS
            raise CallRefused(400, f"the rollout has made env.max_calls = {self.rules.max_calls} calls")
        conversation, prompt, notes = self._prompt(call, asked)
        dialogue = prompt[0]
        self._check_length(dialogue)
        if conversation not in self.conversations:
            self.conversations.append(conversation)
        if "continues" in notes:
            earlier = self.calls[notes["continues"] - 1]
            earlier.continued_by = earlier.continued_by or len(self.calls) + 1
        conversation.dialogue, conversation.context = prompt
        conversation.call = len(self.calls) + 1
        conversation.draw_key = (*self.key, len(self.calls)) if self.calls else self.key
        if overridden:
            notes["overridden"] = sorted(overridden)
        self.calls.append(
            RolloutCall(
                conversation.call, call, conversation, len(dialogue.token_ids), [pending], asked, notes=notes
            )
        )
        return conversation

    def _asked_before(self, call: ModelCall, asked: tuple[Parsed, ...]) -> RolloutCall | None:
        """Return the equal call that this one repeats: the client says so, or has not got its answer."""
        for each in self.calls:
            waits = any(not pending.answer.cancelled() for pending in each.waiting)
            missed = not waits if each.reply is None else not self._delivered(each)
            if each.asked == asked and each.call.tools == call.tools and (call.retry or missed):
                return each
        return None

    def _delivered(self, call: RolloutCall) -> bool:
        """Whether the program has got the answer to a call."""
        return call.reply is not None and call.given and not self.is_lost(call.reply)

    def _prompt(
        self, call: ModelCall, asked: tuple[Parsed, ...]
    ) -> tuple[ProgramConversation, Prompt, dict[str, Any]]:
        """Return the conversation that a call belongs to, its prompt, and what is noted of it."""
        chat = self.context.chat
        if (earlier := self._continues(call, asked)) is None:
            return self._new_conversation(call, asked)
        assert earlier.dialogue is not None
        known = len(earlier.history)
        ours, given = earlier.dialogue.messages, call.messages
        replies = with_names_of_calls(given[known:], given[known - 1], ours[-1])
        notes: dict[str, Any] = {"continues": earlier.number}
        written = {
            part
            for mine, theirs in zip(ours, given, strict=False)
            if mine["role"] == "assistant"
            for part in differences(mine, theirs, chat.tool_format)
        }
        if written:
            notes["written_differently"] = sorted(written)
        before = earlier.conversation
        if not earlier.continued_by:
            return before, continued_prompt(chat, earlier.dialogue, replies), notes
        reason = f"calls {earlier.continued_by} and {len(self.calls) + 1} both continue call {earlier.number}"
        turns = before.turns[: before.turns.index(earlier.turn) + 1] if earlier.turn else []
        prompt = branched_prompt(chat, earlier.dialogue, turns, replies, reason)
        notes["restart"] = reason
        return (
            self._conversation(before.task, prompt, first=before.first, trained=before.trained),
            prompt,
            notes,
        )

    def _continues(self, call: ModelCall, asked: tuple[Parsed, ...]) -> RolloutCall | None:
        """Return the answered call that a call continues: of the longest history, if it can the tip."""
        found = [
            each
            for each in self.calls
            if each.history
            and len(each.history) < len(asked)
            and asked[: len(each.history)] == each.history
            and each.call.tools == call.tools
        ]
        return max(
            found, key=lambda each: (len(each.history), not each.continued_by, -each.number), default=None
        )

    def _new_conversation(
        self, call: ModelCall, asked: tuple[Parsed, ...]
    ) -> tuple[ProgramConversation, Prompt, dict[str, Any]]:
        """Return a conversation that begins with a call: the first, one of its own, or an edited history."""
        like = max(self.calls, key=lambda each: common_length(each.asked, asked), default=None)
        reason, first = "", True
        if like is not None:
            number = len(self.calls) + 1
            edited = common_length(like.asked, asked) >= _opening(asked)
            first = edited and like.conversation.first
            how = difference_of_histories(like.history or like.asked, asked)
            if edited and like.call.tools != call.tools:
                how = "it has other tools"
            reason = (
                f"call {number} edits the history of call {like.number}: {how}"
                if edited
                else f"call {number} begins a conversation of its own"
            )
        task, prompt = new_prompt(self.context.chat, self.task, call, reason)
        trained = self.rules.trains(call, first)
        return (
            self._conversation(task, prompt, first=first, trained=trained),
            prompt,
            {"restart": reason} if reason else {},
        )

    def _conversation(self, task: Task, prompt: Prompt, *, first: bool, trained: bool) -> ProgramConversation:
        number = len(self.conversations)
        key = (*self.key, "conversation", number) if number else self.key
        return ProgramConversation(task, key, *prompt, first=first, trained=trained)

    def _check_length(self, dialogue: Dialogue) -> None:
        """Raise unless the next turn fits into the context."""
        limit = self.context.sampling_params.max_prompt_length(self.context.context_length)
        if len(dialogue.token_ids) > limit:
            self.limit = EndedBy.CONTEXT
            raise CallRefused(
                400,
                f"context_length_exceeded: the messages are {len(dialogue.token_ids)} tokens, and at most"
                f" {limit} leave room for an answer",
            )

    # answers

    def add_answer(self, conversation: ProgramConversation, completion: Completion) -> None:
        """Append the turn that answers a conversation's call, and deliver it."""
        chat, call = self.context.chat, self.calls[conversation.call - 1]
        conversation.add_turn(chat, completion)
        turn = replace(conversation.turns[-1], call=call.number)
        conversation.turns[-1] = call.turn = turn
        call.dialogue = conversation.dialogue
        answer = conversation.dialogue.messages[-1]
        call.history = (*call.asked, parsed(answer, chat.tool_format))
        shown = split_reasoning([answer], chat.tool_format)[0]
        call.reply = ModelReply(
            id=f"{self.name.replace('/', '-')}-{call.number}",
            message=AssistantMessage(
                shown["content"],
                conversation.last_message.calls,
                reasoning=shown.get("reasoning_content", ""),
            ),
            finish_reason=turn.finish_reason,
            prompt_tokens=call.prompt_length,
            completion_tokens=len(completion.token_ids),
        )
        _deliver(call)

    # the end

    def to_rollout(self, has_sent: Callable[[Message], bool]) -> Rollout:
        """Return it as a rollout without a reward; ``has_sent``: whether its own program sent a message."""
        kept = [self._kept(conversation) for conversation in self.conversations]
        answered = [call for call in self.calls if self._delivered(call)]
        trained = [call for call in answered if call.conversation.trained]
        main = trained[-1].conversation if trained else None
        status, ended_by, error = self._end(trained)
        outcome = {**self.outcome, "calls": [self._note(call) for call in self.calls]}
        if self.refused:
            outcome["refused"] = self.refused
        messages = main.dialogue.messages[main.dialogue.task_messages :] if main else ()
        given = [message for message in messages if message["role"] != "assistant"]
        return Rollout(
            rollout_id=self.name,
            group_id=self.group_id,
            task=self.task,
            turns=tuple(turn for turns in kept for turn in turns) or (self._no_turn(),),
            text=main.text if main else "",
            status=status,
            sampling_params=self.context.sampling_params,
            messages=messages,
            sample_messages=tuple(
                conversation.dialogue.messages
                for conversation, turns in zip(self.conversations, kept, strict=True)
                for i, turn in enumerate(turns)
                if i == 0 or turn.restart_reason
            ),
            reply_hashes=(
                *(hash_of_message(each, len(each["content"])) if has_sent(each) else "" for each in given),
                hash_of_outcome(outcome),
            ),
            outcome=outcome,
            ended_by=ended_by,
            error=error,
        )

    def _kept(self, conversation: ProgramConversation) -> list[Turn]:
        """Return the turns of a conversation that the program has got."""
        got = {id(call.turn) for call in self.calls if self._delivered(call)}
        return [replace(turn, trained=conversation.trained) for turn in conversation.turns if id(turn) in got]

    def _end(self, trained: Sequence[RolloutCall]) -> tuple[Status, EndedBy, str]:
        """Return how the rollout ended."""
        if self.error:
            return Status.ERROR, EndedBy.ERROR, self.error
        if not trained:
            what = "made no call" if not self.calls else "got no answer that is trained"
            refusals = f"; refused: {self.refused[0]}" if self.refused else ""
            return Status.ERROR, EndedBy.ERROR, f"the program {what}{refusals}"
        if self.limit is not None:
            return Status.TRUNCATED, self.limit, ""
        turn = trained[-1].turn
        if turn is not None and turn.finish_reason is FinishReason.LENGTH:
            return Status.TRUNCATED, EndedBy.LENGTH, ""
        return Status.DONE, EndedBy.ENVIRONMENT, ""

    def _no_turn(self) -> Turn:
        """Return the turn of a rollout without an answer: the task's own prompt."""
        return empty_turn(start_dialogue(self.context.chat, self.task)[1])

    def _note(self, call: RolloutCall) -> dict[str, Any]:
        """Return what the record says of a call: plain JSON data."""
        note = {
            "call": call.number,
            "conversation": self.conversations.index(call.conversation),
            **call.notes,
        }
        if call.turn is None:
            note["unanswered"] = True
        elif not self._delivered(call):
            note["undelivered"] = True
        if not call.conversation.trained:
            note["untrained"] = True
        return note


def _opening(asked: Sequence[Parsed]) -> int:
    """Return how many messages a history begins with, up to the first that is no system message."""
    return next((i + 1 for i, (role, *_) in enumerate(asked) if role != "system"), len(asked))


def _deliver(call: RolloutCall) -> None:
    """Give the answer to every client that waits for it; one that has gone away has not got it."""
    assert call.reply is not None
    for pending in call.waiting:
        if pending.answer.set_running_or_notify_cancel():
            pending.answer.set_result(call.reply)
            call.given = True
    call.waiting = []
