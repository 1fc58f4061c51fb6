"""One rollout in progress: its messages, its sampled turns, and how it ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from truing.chat import Chat, TurnContext, observe
from truing.config import EpisodeConfig
from truing.engines.base import Completion, Request
from truing.rollouts.conversation import Conversation
from truing.types.message import Message
from truing.types.rollout import Rollout, Turn
from truing.types.sampling_params import SamplingParams
from truing.types.status import EndedBy, FinishReason, Status

TOOL_REMEDY = (
    "fix the tool or the environment; where a call is the model's mistake (an unknown name, say), raise"
    " truing.ToolError instead of KeyError: the model reads its text, and the rollout goes on"
)
"""The remedy where rollouts fail: what ends them is an exception of a tool or of an environment."""


@dataclass(eq=False, kw_only=True)
class RunningRollout(Conversation):
    """A rollout of a task as one conversation; ``status`` is None while it is in progress."""

    group_id: str
    episode: int | None  # its id; None if the environment has no episodes: the rollout is one turn
    status: Status | None = None
    ended_by: EndedBy = EndedBy.ENVIRONMENT
    error: str = ""
    outcome: Mapping[str, Any] = field(default_factory=dict[str, Any])
    reply_hashes: Sequence[str] = ()  # of the environment's messages and outcome, where its episode lives

    @property
    def request(self) -> Request:
        """The next turn to sample. The first has the same random-number key as a single-turn rollout."""
        key = (*self.key, len(self.turns)) if self.turns else self.key
        episode = None if self.episode is None else self.key
        return Request(self.dialogue.token_ids, key, episode=episode)

    def add_turn(self, chat: Chat, completion: Completion) -> None:
        """Append a sampled turn; one that reached ``max_new_tokens`` ends the rollout."""
        super().add_turn(chat, completion)
        if completion.finish_reason is FinishReason.LENGTH:
            self.end(Status.TRUNCATED, EndedBy.LENGTH)

    def observe(
        self, chat: Chat, replies: Sequence[Message], limits: EpisodeConfig, max_prompt_length: int
    ) -> None:
        """Append the environment's replies; the next prompt may have up to ``max_prompt_length`` ids."""
        if not replies:
            self.end(Status.DONE, EndedBy.ENVIRONMENT)
            return
        shortened = [_cap(message, limits.max_reply_chars) for message in replies]
        self.dialogue, self.context = observe(chat, self.dialogue, shortened)
        if len(self.turns) >= limits.max_turns:
            self.end(Status.TRUNCATED, EndedBy.TURNS)
        elif len(self.dialogue.token_ids) > max_prompt_length:
            self.end(Status.TRUNCATED, EndedBy.CONTEXT)

    def end(self, status: Status, by: EndedBy, error: str = "") -> None:
        """End the rollout."""
        self.status, self.ended_by, self.error = status, by, error

    def to_rollout(self, sampling_params: SamplingParams, index: int) -> Rollout:
        """Return it as a rollout without a reward; ``index`` is its index in the group."""
        assert self.status is not None  # the loop runs until then
        return Rollout(
            rollout_id=f"{self.group_id}/{index}",
            group_id=self.group_id,
            task=self.task,
            turns=tuple(self.turns) or (empty_turn(self.context),),
            text=self.text,
            status=self.status,
            sampling_params=sampling_params,
            messages=self.dialogue.messages[self.dialogue.task_messages :],
            reply_hashes=tuple(self.reply_hashes),
            outcome=self.outcome,
            ended_by=self.ended_by,
            error=self.error,
        )


def empty_turn(context: TurnContext) -> Turn:
    """Return the turn of a rollout that failed before its first turn, so that its prompt is recorded."""
    empty = torch.empty(0)
    return Turn(
        context_ids=context.token_ids,
        context_origin=context.origin,
        token_ids=empty.long(),
        origin=empty.to(torch.uint8),
        structure=empty.bool(),
        sampler_logprob=empty,
        finish_reason=FinishReason.ERROR,
        sampler_version=0,
        weight_digest="",
    )


def _cap(message: Message, limit: int) -> Message:
    """Return a message of at most ``limit`` characters; its text states how many were cut."""
    cut_chars = len(message["content"]) - limit
    if cut_chars <= 0:
        return message
    content = f"{message['content'][:limit]}\n[{cut_chars} characters more were cut]"
    return {**message, "content": content, "lost_chars": cut_chars}


def remedy_of(failed: Rollout) -> str:
    """Return what to do about a rollout that failed; "" if its error says so, or is of a program."""
    return "" if "remedy:" in failed.error or "calls" in failed.outcome else TOOL_REMEDY
