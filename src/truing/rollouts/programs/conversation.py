"""A conversation of a program: which calls continue each other, and the ids that the next one begins with."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from truing.chat import Chat, Dialogue, TurnContext, observe, start_dialogue
from truing.engines.base import Request
from truing.envs.adapters.schema import validated_schema
from truing.rollouts.conversation import Conversation
from truing.types.message import Message
from truing.types.model_call import ModelCall
from truing.types.rollout import Task, Turn
from truing.types.token import Origin


@dataclass(eq=False, kw_only=True)
class ProgramConversation(Conversation):
    """Calls of one rollout that continue each other: they are one sample, or several where turns restart."""

    first: bool  # it begins with the program's first call, or its history was made from that conversation's
    trained: bool
    call: int = 0  # the number of the call that is sampled next, from 1
    draw_key: tuple[object, ...] = ()  # of the random numbers of that call
    trained_before: int = 0  # calls of the rollout before it that are trained

    @property
    def request(self) -> Request:
        """The next turn to sample."""
        return Request(self.dialogue.token_ids, self.draw_key, episode=self.key)

    @property
    def demonstrated_turn(self) -> int | None:
        """Which turn of the demonstration the next one is: only conversations that are trained have one."""
        return self.trained_before if self.trained else None

    def begin_call(
        self, prompt: "Prompt", number: int, draw_key: tuple[object, ...], trained_before: int
    ) -> None:
        """Go on with the prompt of a call, before which the rollout has had so many that are trained."""
        self.dialogue, self.context = prompt
        self.call, self.draw_key, self.trained_before = number, draw_key, trained_before


Prompt = tuple[Dialogue, TurnContext]
"""What a call is sampled from: the dialogue, and the ids that the engine has not read yet."""


def new_prompt(chat: Chat, task: Task, call: ModelCall, restart_reason: str) -> tuple[Task, Prompt]:
    """Return the prompt of a call that continues no other, and its task with the messages of the call.

    Raises:
        DataError: The schema of a tool is none, or the chat template refuses the messages.
    """
    for tool in call.tools:
        validated_schema(tool.parameters, f"the tool {tool.name!r}")
    own = replace(task, messages=call.messages, tools=call.tools)
    dialogue, context = start_dialogue(chat, own, of_data=False)
    return own, (dialogue, replace(context, restart_reason=restart_reason))


def branched_prompt(
    chat: Chat, dialogue: Dialogue, turns: Sequence[Turn], replies: Sequence[Message], restart_reason: str
) -> Prompt:
    """Return the prompt of a call that continues a turn which another call continues already.

    The ids so far are context of the new sample, so that no sampled token is in two samples.

    Args:
        chat: of the model.
        dialogue: after the turn.
        turns: those of its conversation, up to the turn.
        replies: the messages after it.
        restart_reason: why a sample begins here.
    """
    extended, context = observe(chat, dialogue, replies)
    if context.restart_reason:  # the template renders the turns so far in another way
        return extended, context
    ids = torch.cat([dialogue.token_ids, context.token_ids])
    origin = torch.cat([_as_context(turns), context.origin])
    return extended, TurnContext(ids, origin, restart_reason)


def _as_context(turns: Sequence[Turn]) -> Tensor:
    """Return the origin of the ids of turns, where they are context: what was sampled is template text."""
    last_start = max(i for i, turn in enumerate(turns) if i == 0 or turn.restart_reason)
    parts = [part for turn in turns[last_start:] for part in (turn.context_origin, turn.origin)]
    origin = torch.cat(parts)
    chosen = (origin == Origin.SAMPLED) | (origin == Origin.DEMO) | (origin == Origin.FORCED)
    return torch.where(chosen, Origin.TEMPLATE, origin).to(torch.uint8)
