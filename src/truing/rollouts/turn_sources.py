"""Sources of a rollout's turns: the policy, through its sampler, or the demonstrations."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from truing.chat import CallGrammars, Chat, encode_reply
from truing.chat.encode import ANCHOR, encode_after
from truing.config import EpisodeConfig
from truing.engines.base import Completion, Engine, Request, RunningBatch
from truing.errors import DataError
from truing.rollouts.attempt import Attempt
from truing.types.message import AssistantMessage
from truing.types.rollout import DemonstratedText, Task
from truing.types.sampling_params import SamplingParams
from truing.types.status import FinishReason
from truing.types.token import Origin
from truing.utils.rng import uniforms


@dataclass(frozen=True, eq=False)
class PolicyTurns:
    """The engine's turns; a share ``force_rate`` of them is prefilled with ``forced_ids`` [F]."""

    engine: Engine
    sampling_params: SamplingParams
    forced_ids: Tensor
    force_rate: float = 0.0
    grammars: CallGrammars | None = None  # constrain the calls of tasks with tools to their schemas

    @contextmanager
    def running_turns(self) -> "Iterator[SampledTurns]":
        """Return the turns of one collection; what is unfinished at its end is dropped."""
        with self.engine.running_batch(self.sampling_params) as batch:
            yield SampledTurns(self, batch)

    def request(self, attempt: Attempt) -> Request:
        """Return the request for the next turn, with its forced prefix and its grammar if it has one."""
        key, prompt = attempt.request.rng_key, attempt.request.prompt_ids
        max_forced = self.sampling_params.max_prompt_length(self.engine.context_length) - len(prompt)
        is_forced = self.force_rate and uniforms(1, *key, "force").item() < self.force_rate
        if is_forced and len(self.forced_ids) <= max_forced:
            attempt.force_prefix(self.forced_ids)
        if self.grammars is None or not attempt.task.tools:
            return attempt.request
        return replace(
            attempt.request,
            make_matcher=partial(self.grammars.turn_matcher, attempt.dialogue, attempt.forced_ids),
        )


class SampledTurns:
    """Turns that an engine is sampling."""

    def __init__(self, source: PolicyTurns, batch: RunningBatch) -> None:
        self._source, self._batch = source, batch
        self._attempts: dict[int, tuple[Request, Attempt]] = {}  # by the request's identity

    @property
    def unfinished(self) -> int:
        """Rollouts whose next turn is not finished."""
        return len(self._attempts)

    def add(self, attempts: Sequence[Attempt]) -> None:
        """Begin the next turn of each rollout."""
        requests = [self._source.request(attempt) for attempt in attempts]
        for request, attempt in zip(requests, attempts, strict=True):
            self._attempts[id(request)] = request, attempt
        self._batch.add(requests)

    def step(self) -> list[tuple[Attempt, Completion]]:
        """Sample further, and return the turns that finished."""
        if not self._attempts:
            return []
        return [(self._attempts.pop(id(request))[1], turn) for request, turn in self._batch.step()]

    def release(self, attempt: Attempt) -> None:
        """Free what is cached for a rollout that has ended."""
        self._batch.release(attempt.key)


class KnownTurns:
    """Turns that need no sampling: ``next_turn`` gives that of a rollout at once."""

    def __init__(self, next_turn: Callable[[Attempt], Completion]) -> None:
        self._next_turn = next_turn
        self._attempts: list[Attempt] = []

    @property
    def unfinished(self) -> int:
        """Rollouts whose next turn is not finished."""
        return len(self._attempts)

    def add(self, attempts: Sequence[Attempt]) -> None:
        """Begin the next turn of each rollout."""
        self._attempts += attempts

    def step(self) -> list[tuple[Attempt, Completion]]:
        """Return the turns."""
        attempts, self._attempts = self._attempts, []
        return [(attempt, self._next_turn(attempt)) for attempt in attempts]

    def release(self, attempt: Attempt) -> None:
        """Do nothing: nothing is cached."""


@dataclass(frozen=True, eq=False)
class DemonstrationTurns:
    """The tasks' demonstrations, encoded as the ids that the policy would sample."""

    chat: Chat

    def running_turns(self) -> AbstractContextManager[KnownTurns]:
        """Return the turns of one collection."""
        return nullcontext(KnownTurns(self._next))

    def _next(self, attempt: Attempt) -> Completion:
        if isinstance(attempt.task.demonstration, DemonstratedText):
            return _rest_of(attempt.task.demonstration)
        turns = demonstration_turns(attempt.task)
        if len(attempt.turns) == len(turns):
            raise DataError(
                f"the demonstration of task {attempt.task.task_id} ends before its episode does",
                got=f"{len(turns)} turns, then {attempt.dialogue.messages[-1]['content']!r:.200}",
                expected="a last turn that ends the episode",
            )
        return demonstrated(self.chat, attempt, turns[len(attempt.turns)])


def demonstrated(chat: Chat, attempt: Attempt, message: AssistantMessage) -> Completion:
    """Return a message as the next turn of a rollout, in the ids that the policy would sample."""
    dialogue = attempt.dialogue
    chat = chat.with_variables(dialogue.template_kwargs)
    try:
        return _demonstration(encode_reply(chat, dialogue.messages, message, dialogue.tools))
    except DataError as error:
        raise error.of(attempt.task.where) from error


def _rest_of(text: DemonstratedText) -> Completion:
    """Return the ids of a text after its context, as one turn."""
    return _demonstration(torch.tensor(text.token_ids[text.context :]))


def _demonstration(ids: Tensor) -> Completion:
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
