"""A conversation of the policy in progress: its ids, its context, and the turns that it has sampled."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from truing.chat import Chat, Dialogue, TurnContext, add_turn, decode_reply, read_turn
from truing.engines.base import Completion, Request
from truing.types.message import AssistantMessage
from truing.types.rollout import Task, Turn
from truing.types.status import FinishReason
from truing.types.token import Origin
from truing.types.turn_routes import routes_of_turn


@dataclass(eq=False)
class Conversation:
    """Turns that continue each other; ``key`` names it, and what an engine caches for it."""

    task: Task
    key: tuple[object, ...]
    dialogue: Dialogue
    context: TurnContext
    turns: list[Turn] = field(default_factory=list)
    text: str = ""
    last_message: AssistantMessage = field(default_factory=AssistantMessage)

    @property
    def request(self) -> Request:
        """The next turn to sample; a sub-class says by which random numbers."""
        raise NotImplementedError

    @property
    def demonstrated_turn(self) -> int | None:
        """Which turn of the task's demonstration comes next, from 0; None if it has none for this."""
        return len(self.turns)

    @property
    def forced_ids(self) -> Tensor:
        """The prefilled ids [F] of the next turn; the policy does not choose them."""
        return self.context.token_ids[self.context.origin == Origin.FORCED]

    def force_prefix(self, ids: Tensor) -> None:
        """Prefill the next turn with ids [F]."""
        forced = torch.full((len(ids),), Origin.FORCED, dtype=torch.uint8)
        context, dialogue = self.context, self.dialogue
        self.context = replace(
            context,
            token_ids=torch.cat([context.token_ids, ids]),
            origin=torch.cat([context.origin, forced]),
        )
        self.dialogue = replace(dialogue, token_ids=torch.cat([dialogue.token_ids, ids]))

    def add_turn(self, chat: Chat, completion: Completion) -> None:
        """Append a sampled turn."""
        forced = self.forced_ids
        self.last_message, structure = read_turn(chat, self.dialogue, forced, completion.token_ids)
        self.text = decode_reply(chat, torch.cat([forced, completion.token_ids]))
        finish = completion.finish_reason
        if finish is FinishReason.STOP and self.last_message.calls:
            finish = FinishReason.TOOL
        self.turns.append(
            Turn(
                context_ids=self.context.token_ids,
                context_origin=self.context.origin,
                token_ids=completion.token_ids,
                origin=completion.origin,
                structure=structure,
                sampler_logprob=completion.logprob.to(torch.float32),
                finish_reason=finish,
                sampler_version=completion.version,
                weight_digest=completion.weight_digest,
                support=completion.support,
                restart_reason=self.context.restart_reason,
                routes=routes_of_turn(
                    completion.routes, len(self.context.token_ids) + len(completion.token_ids)
                ),
                prompt_hash=completion.prompt_hash,
            )
        )
        self.dialogue = add_turn(chat, self.dialogue, forced, completion.token_ids, self.last_message)
