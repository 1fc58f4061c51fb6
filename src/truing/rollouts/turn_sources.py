"""Sources of a conversation's turns: the policy, through its sampler, or the demonstrations."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from truing.chat import CallGrammars, Chat, encode_reply
from truing.chat.encode import ANCHOR, encode_after
from truing.config import EpisodeConfig
from truing.engines.base import Completion, Engine, Request, RunningBatch
from truing.errors import DataError
from truing.rollouts.conversation import Conversation
from truing.types.message import AssistantMessage
from truing.types.rollout import DemonstratedText, Task
from truing.types.sampling_params import SamplingParams
from truing.types.status import FinishReason
from truing.types.token import Origin
from truing.utils.rng import uniforms

C = TypeVar("C", bound=Conversation)


@dataclass(frozen=True, eq=False)
class PolicyTurns:
    """The engine's turns; a share ``force_rate`` of them is prefilled with ``forced_ids`` [F]."""

    engine: Engine
    sampling_params: SamplingParams
    forced_ids: Tensor
    force_rate: float = 0.0
    grammars: CallGrammars | None = None  # constrain the calls of tasks with tools to their schemas

    @contextmanager
    def running_turns(self) -> "Iterator[SampledTurns[Any]]":
        """Return the turns of one collection; what is unfinished at its end is dropped."""
        with self.engine.running_batch(self.sampling_params) as batch:
            yield SampledTurns(self, batch)

    def request(self, conversation: Conversation) -> Request:
        """Return the request for the next turn, with its forced prefix and its grammar if it has one."""
        key, prompt = conversation.request.rng_key, conversation.request.prompt_ids
        max_forced = self.sampling_params.max_prompt_length(self.engine.context_length) - len(prompt)
        is_forced = self.force_rate and uniforms(1, *key, "force").item() < self.force_rate
        if is_forced and len(self.forced_ids) <= max_forced:
            conversation.force_prefix(self.forced_ids)
        if self.grammars is None or not conversation.dialogue.tools:
            return conversation.request
        return replace(
            conversation.request,
            make_matcher=partial(self.grammars.turn_matcher, conversation.dialogue, conversation.forced_ids),
        )


class SampledTurns(Generic[C]):
    """Turns that an engine is sampling."""

    def __init__(self, source: PolicyTurns, batch: RunningBatch) -> None:
        self._source, self._batch = source, batch
        self._conversations: dict[int, tuple[Request, C]] = {}  # by the request's identity

    @property
    def unfinished(self) -> int:
        """Conversations whose next turn is not finished."""
        return len(self._conversations)

    def add(self, conversations: Sequence[C]) -> None:
        """Begin the next turn of each conversation."""
        requests = [self._source.request(conversation) for conversation in conversations]
        for request, conversation in zip(requests, conversations, strict=True):
            self._conversations[id(request)] = request, conversation
        self._batch.add(requests)

    def step(self) -> list[tuple[C, Completion]]:
        """Sample further, and return the turns that finished."""
        if not self._conversations:
            return []
        return [(self._conversations.pop(id(request))[1], turn) for request, turn in self._batch.step()]

    def release(self, conversation: C) -> None:
        """Free what is cached for a conversation that has ended."""
        self._batch.release(conversation.key)


class KnownTurns(Generic[C]):
    """Turns that need no sampling: ``next_turn`` gives that of a conversation at once."""

    def __init__(self, next_turn: Callable[[C], Completion]) -> None:
        self._next_turn = next_turn
        self._conversations: list[C] = []

    @property
    def unfinished(self) -> int:
        """Conversations whose next turn is not finished."""
        return len(self._conversations)

    def add(self, conversations: Sequence[C]) -> None:
        """Begin the next turn of each conversation."""
        self._conversations += conversations

    def step(self) -> list[tuple[C, Completion]]:
        """Return the turns."""
        conversations, self._conversations = self._conversations, []
        return [(conversation, self._next_turn(conversation)) for conversation in conversations]

    def release(self, conversation: C) -> None:
        """Do nothing: nothing is cached."""


@dataclass(frozen=True, eq=False)
class DemonstrationTurns:
    """The tasks' demonstrations, encoded as the ids that the policy would sample."""

    chat: Chat

    def running_turns(self) -> AbstractContextManager[KnownTurns[Any]]:
        """Return the turns of one collection."""
        return nullcontext(KnownTurns(self._next))

    def _next(self, conversation: Conversation) -> Completion:
        if isinstance(conversation.task.demonstration, DemonstratedText):
            return _rest_of(conversation.task.demonstration)
        turns, index = demonstration_turns(conversation.task), conversation.demonstrated_turn
        if index is None:  # a program's call for something else, which is not trained
            return demonstrated(self.chat, conversation, AssistantMessage())
        if index == len(turns):
            raise DataError(
                f"the demonstration of task {conversation.task.task_id} ends before its episode does",
                got=f"{len(turns)} turns, then {conversation.dialogue.messages[-1]['content']!r:.200}",
                expected="a last turn that ends the episode",
            )
        return demonstrated(self.chat, conversation, turns[index])


def demonstrated(chat: Chat, conversation: Conversation, message: AssistantMessage) -> Completion:
    """Return a message as the next turn of a conversation, in the ids that the policy would sample."""
    dialogue = conversation.dialogue
    chat = chat.with_variables(dialogue.template_kwargs)
    try:
        return demonstrated_ids(encode_reply(chat, dialogue.messages, message, dialogue.tools))
    except DataError as error:
        raise error.of(conversation.task.where) from error


def _rest_of(text: DemonstratedText) -> Completion:
    """Return the ids of a text after its context, as one turn."""
    return demonstrated_ids(torch.tensor(text.token_ids[text.context :]))


def demonstrated_ids(ids: Tensor) -> Completion:
    """Return ids [L] as a demonstrated turn."""
    origin = torch.full((len(ids),), Origin.DEMO, dtype=torch.uint8)
    return Completion(ids, origin, torch.full((len(ids),), torch.nan), None, FinishReason.DEMO)


def demonstration_turns(task: Task) -> tuple[AssistantMessage, ...]:
    """Return the turns of a task's demonstration."""
    demonstration = task.demonstration
    if demonstration is None or isinstance(demonstration, DemonstratedText):
        raise no_demonstration(task)
    return (AssistantMessage(demonstration),) if isinstance(demonstration, str) else demonstration


def no_demonstration(task: Task) -> DataError:
    """Return the error for a task that nothing demonstrates."""
    return DataError(
        f"task {task.task_id} has no demonstration to train on",
        remedy="remove the sft stage and the bootstrap, or give each training task a demonstration: of own"
        " rows, env.completion_column names its column",
    )


def forced_prefix_ids(chat: Chat, text: str) -> Tensor:
    """Return the ids [F] of a text to prefill, as tokenized after other text."""
    ids, _ = encode_after(chat.tokenizer, ANCHOR, text)
    return torch.tensor(ids, dtype=torch.long)


def force_rate(limits: EpisodeConfig, step: int) -> float:
    """Return the share of turns to prefill at a step: constant, or falling linearly to 0."""
    share = max(0.0, 1 - step / limits.force_steps) if limits.force_steps else 1.0
    return limits.force_rate * share
