"""One attempt while it goes on: what was said, what was drawn, and how it ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from truing.chat import Chat, Dialogue, TurnContext, add_turn, decode_reply, observe, read_turn
from truing.config import EpisodeConfig
from truing.engines.base import Completion, Request
from truing.envs.base import Episode
from truing.types.message import AssistantMessage, Message
from truing.types.rollout import Rollout, Task, Turn
from truing.types.sampling_params import SamplingParams
from truing.types.status import EndedBy, FinishReason, Status
from truing.types.token import Origin


@dataclass(eq=False)
class Attempt:
    """An attempt at a task; ``status`` is None while it goes on."""

    task: Task
    group_id: str
    key: tuple[object, ...]
    dialogue: Dialogue
    context: TurnContext
    episode: Episode | None  # None where the environment has no episodes: one turn is all
    turns: list[Turn] = field(default_factory=list)
    text: str = ""
    last_message: AssistantMessage = field(default_factory=AssistantMessage)
    status: Status | None = None
    ended_by: EndedBy = EndedBy.ENVIRONMENT
    error: str = ""
    outcome: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def request(self) -> Request:
        """The next answer to draw. The first is keyed as where there is one turn only."""
        key = (*self.key, len(self.turns)) if self.turns else self.key
        episode = None if self.episode is None else self.key
        return Request(self.dialogue.token_ids, key, episode=episode)

    @property
    def forced_ids(self) -> Tensor:
        """The ids [F] that the next turn begins with, and that the policy did not choose."""
        return self.context.token_ids[self.context.origin == Origin.FORCED]

    def force_prefix(self, ids: Tensor) -> None:
        """Begin the next turn with ids [F] that the policy did not choose."""
        forced = torch.full((len(ids),), Origin.FORCED, dtype=torch.uint8)
        context, dialogue = self.context, self.dialogue
        self.context = replace(
            context,
            token_ids=torch.cat([context.token_ids, ids]),
            origin=torch.cat([context.origin, forced]),
        )
        self.dialogue = replace(dialogue, token_ids=torch.cat([dialogue.token_ids, ids]))

    def add_turn(self, chat: Chat, drawn: Completion, version: int, weight_digest: str) -> None:
        """Take in what the policy drew."""
        forced = self.forced_ids
        self.last_message, structure = read_turn(chat, self.dialogue, forced, drawn.token_ids)
        self.text = decode_reply(chat, torch.cat([forced, drawn.token_ids]))
        finish = drawn.finish_reason
        if finish is FinishReason.STOP and self.last_message.calls:
            finish = FinishReason.TOOL
        self.turns.append(
            Turn(
                context_ids=self.context.token_ids,
                context_origin=self.context.origin,
                token_ids=drawn.token_ids,
                origin=drawn.origin,
                structure=structure,
                sampler_logprob=drawn.logprob.to(torch.float32),
                finish_reason=finish,
                sampler_version=version,
                weight_digest=weight_digest,
                support=drawn.support,
                restart_reason=self.context.restart_reason,
            )
        )
        self.dialogue = add_turn(chat, self.dialogue, forced, drawn.token_ids, self.last_message)
        if finish is FinishReason.LENGTH:
            self.end(Status.TRUNCATED, EndedBy.LENGTH)

    def observe(
        self, chat: Chat, replies: Sequence[Message], limits: EpisodeConfig, max_prompt_length: int
    ) -> None:
        """Take in what the world answered; ``room`` is how many ids the next turn may be shown."""
        if not replies:
            self.end(Status.DONE, EndedBy.ENVIRONMENT)
            return
        capped = [_cap(message, limits.max_reply_chars) for message in replies]
        self.dialogue, self.context = observe(chat, self.dialogue, capped)
        if len(self.turns) >= limits.max_turns:
            self.end(Status.TRUNCATED, EndedBy.TURNS)
        elif len(self.dialogue.token_ids) > max_prompt_length:
            self.end(Status.TRUNCATED, EndedBy.CONTEXT)

    def end(self, status: Status, by: EndedBy, error: str = "") -> None:
        """Nothing more is drawn."""
        self.status, self.ended_by, self.error = status, by, error

    def _empty_turn(self) -> Turn:
        """The turn of an attempt that failed before its first word, so that its prompt is on record."""
        nothing = torch.empty(0)
        return Turn(
            context_ids=self.context.token_ids,
            context_origin=self.context.origin,
            token_ids=nothing.long(),
            origin=nothing.to(torch.uint8),
            structure=nothing.bool(),
            sampler_logprob=nothing,
            finish_reason=FinishReason.ERROR,
            sampler_version=0,
            weight_digest="",
        )

    def to_rollout(self, sampling_params: SamplingParams, place: int) -> Rollout:
        """The attempt as a value, not graded yet."""
        assert self.status is not None  # the loop ends no sooner
        return Rollout(
            rollout_id=f"{self.group_id}/{place}",
            group_id=self.group_id,
            task=self.task,
            turns=tuple(self.turns) or (self._empty_turn(),),
            text=self.text,
            status=self.status,
            sampling_params=sampling_params,
            messages=self.dialogue.messages[self.dialogue.task_messages :],
            outcome=self.outcome,
            ended_by=self.ended_by,
            error=self.error,
        )


def _cap(message: Message, limit: int) -> Message:
    """A message of at most ``limit`` characters; what was cut is told to the model, and counted."""
    lost = len(message["content"]) - limit
    if lost <= 0:
        return message
    told = f"{message['content'][:limit]}\n[{lost} characters more were cut]"
    return {**message, "content": told, "lost_chars": lost}
