"""One rollout of a program: its calls are placed, refused or answered, and become turns of conversations."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from truing.chat.encode import encode_after
from truing.endpoint.calls import CallRefused
from truing.endpoint.wanted import overridden
from truing.engines.base import Completion
from truing.envs.program_env import CallRules
from truing.errors import DataError
from truing.rollouts.call_queue import PendingCall
from truing.rollouts.episode_context import EpisodeContext
from truing.rollouts.programs.call import RolloutCall
from truing.rollouts.programs.conversation import ProgramConversation
from truing.rollouts.programs.history import Parsed, parsed
from truing.rollouts.programs.placement import Placement, place
from truing.types.model_call import ModelCall, ModelReply
from truing.types.rollout import Task
from truing.types.status import EndedBy

RECORDED_REFUSALS = 100
"""Refusals of a rollout whose text is on record: a program may ask again without end."""

CHARS_PER_TOKEN = 8
"""Characters for each token of the context; of a text with more, so many are encoded first."""

WITH_REASONING = 16
"""Times these characters that a call may have with the reasoning of earlier turns, which templates drop."""


@dataclass(eq=False)
class ProgramRollout:
    """A rollout whose turns answer the calls of a program."""

    task: Task
    group_id: str
    index: int  # in its group
    key: tuple[object, ...]
    context: EpisodeContext
    rules: CallRules
    is_lost: Callable[[ModelReply], bool]  # whether no client has got a reply
    conversations: list[ProgramConversation] = field(default_factory=list[ProgramConversation])
    calls: list[RolloutCall] = field(default_factory=list[RolloutCall])
    refused: list[str] = field(default_factory=list[str])  # the first refusals
    refused_calls: int = 0
    limit: EndedBy | None = None  # that refused a call
    error: str = ""  # of the program
    outcome: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def name(self) -> str:
        """The id of the rollout."""
        return f"{self.group_id}/{self.index}"

    def begin(self, pending: PendingCall) -> ProgramConversation | None:
        """Return the conversation whose next turn answers a call; None if no turn has to be sampled.

        A call that is refused is answered here, and so is one that repeats an answered call.
        """
        try:
            return self._begin(pending)
        except (CallRefused, DataError) as error:  # DataError: the messages or tools cannot be shown
            refused = error if isinstance(error, CallRefused) else CallRefused(400, str(error))
            self.refused_calls += 1
            if len(self.refused) < RECORDED_REFUSALS:
                self.refused.append(str(refused))
            pending.refuse(refused)
            return None

    def add_answer(self, conversation: ProgramConversation, completion: Completion) -> None:
        """Append the turn that answers a conversation's call, and deliver it."""
        reply_id = f"{self.name.replace('/', '-')}-{conversation.call}"
        self.calls[conversation.call - 1].set_answer(self.context.chat, completion, reply_id)

    def delivered(self, call: RolloutCall) -> bool:
        """Whether the program has got the answer to a call: it took it, or continues it."""
        if call.reply is None:
            return False
        return bool(call.continued_by) or (call.given and not self.is_lost(call.reply))

    def _begin(self, pending: PendingCall) -> ProgramConversation | None:
        call, chat = pending.call, self.context.chat
        asked = tuple(parsed(message, chat.tool_format) for message in call.messages)
        if (same := self._asked_before(call, asked)) is not None:
            same.waiting.append(pending)
            if same.reply is not None:
                same.deliver()
            return None
        constrained = self.context.limits.grammar != "off"
        ignored = overridden(
            call.wanted, self.context.sampling_params, self.rules.override, constrained=constrained
        )
        if call.messages[-1]["role"] == "assistant":
            raise CallRefused(400, "the last message is the assistant's: an answer is not continued")
        self._check_budget()
        self._check_text(call, asked)
        placement = place(chat, self.task, self.calls, call, asked)
        self._check_length(len(placement.prompt[0].token_ids))
        conversation = self._conversation(placement, call)
        number = len(self.calls) + 1
        if (before := placement.continues) is not None:
            before.continued_by = before.continued_by or number
        draw_key = (*self.key, number - 1) if self.calls else self.key
        trained_before = sum(each.conversation.trained for each in self.calls)
        conversation.begin_call(placement.prompt, number, draw_key, trained_before)
        notes = placement.notes | ({"overridden": list(ignored)} if ignored else {})
        length = len(conversation.dialogue.token_ids)
        self.calls.append(RolloutCall(number, call, conversation, length, asked, notes, [pending]))
        return conversation

    def _asked_before(self, call: ModelCall, asked: tuple[Parsed, ...]) -> RolloutCall | None:
        """Return the equal call that this one repeats: the client says so, or no client got its answer."""
        for each in self.calls:
            missed = not each.is_awaited if each.reply is None else not self.delivered(each)
            if each.asked == asked and each.call.tools == call.tools and (call.retry or missed):
                return each
        return None

    def _conversation(self, placement: Placement, call: ModelCall) -> ProgramConversation:
        """Return the conversation of a placement; a new one is added."""
        if placement.conversation is not None:
            return placement.conversation
        branch_of, first = placement.branch_of, placement.first
        trained = branch_of.trained if branch_of is not None else self.rules.trains(call, first)
        number = len(self.conversations)
        key = (*self.key, "conversation", number) if number else self.key
        added = ProgramConversation(placement.task, key, *placement.prompt, first=first, trained=trained)
        self.conversations.append(added)
        return added

    def _check_text(self, call: ModelCall, asked: tuple[Parsed, ...]) -> None:
        """Raise if the beginning of a call is too long: to encode megabytes would delay all rollouts."""
        limit = self.context.sampling_params.max_prompt_length(self.context.context_length)
        shown = CHARS_PER_TOKEN * limit
        chars = len(json.dumps(call.messages, ensure_ascii=False))
        if chars > WITH_REASONING * shown:
            most = WITH_REASONING * shown
            self._refuse_length(f"have {chars} characters, reasoning included, and at most {most} are read")
        text = "\n".join(_shown(call, asked))
        if len(text) > shown:
            self._check_length(
                len(encode_after(self.context.chat.tokenizer, "", text[:shown])[0]), "at least "
            )

    def _check_budget(self) -> None:
        """Raise if the rollout has made as many calls, or sampled as many tokens, as the recipe allows."""
        sampled = sum(each.reply.completion_tokens for each in self.calls if each.reply is not None)
        for key, count, most in (
            ("max_calls", len(self.calls), self.rules.max_calls),
            ("max_tokens", sampled, self.rules.max_tokens),
        ):
            if most is not None and count >= most:
                self.limit = EndedBy.TURNS
                raise CallRefused(400, f"the rollout has reached env.{key} = {most}")

    def _check_length(self, length: int, bound: str = "") -> None:
        """Raise unless the next turn fits into the context."""
        limit = self.context.sampling_params.max_prompt_length(self.context.context_length)
        if length > limit:
            self._refuse_length(f"are {bound}{length} tokens, and at most {limit} leave room for an answer")

    def _refuse_length(self, how: str) -> NoReturn:
        """Raise since the messages of a call are too long."""
        self.limit = EndedBy.CONTEXT
        raise CallRefused(400, f"context_length_exceeded: the messages {how}")


def _shown(call: ModelCall, asked: tuple[Parsed, ...]) -> Iterator[str]:
    """Yield the texts of a call that its prompt shows: of messages and their calls, and of tools."""
    for _, text, calls in asked:
        yield text
        for name, arguments in calls:
            yield name
            yield arguments
    for tool in call.tools:
        yield json.dumps(tool.schema(), ensure_ascii=False)
