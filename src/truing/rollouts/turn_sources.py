"""Sources of an attempt's turns: the policy, through its sampler, or the demonstrations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from truing.chat import CallGrammars, Chat, encode_reply
from truing.chat.encode import ANCHOR, encode_after
from truing.config import EpisodeConfig
from truing.engines.base import Completion, Request
from truing.engines.local.engine import LocalEngine
from truing.errors import DataError
from truing.rollouts.attempt import Attempt
from truing.types.message import AssistantMessage
from truing.types.sampling_params import SamplingParams
from truing.types.status import FinishReason
from truing.types.token import Origin
from truing.utils.rng import uniforms


@dataclass(frozen=True, eq=False)
class PolicyTurns:
    """The sampler's turns; a share ``force_rate`` of them is prefilled with ``forced_ids`` [F]."""

    engine: LocalEngine
    sampling_params: SamplingParams
    forced_ids: Tensor
    force_rate: float = 0.0
    grammars: CallGrammars | None = None  # constrain the calls of tasks with tools to their schemas

    @property
    def version(self) -> int:
        """The version or digest of the sampler's weights."""
        return self.engine.version

    @property
    def weight_digest(self) -> str:
        """The version or digest of the sampler's weights."""
        return self.engine.weight_digest

    def next_turns(self, attempts: Sequence[Attempt]) -> list[Completion]:
        """Return one sampled turn per attempt."""
        for attempt in attempts:
            room = (
                self.engine.context_length
                - self.sampling_params.max_new_tokens
                - len(attempt.request.prompt_ids)
            )
            chosen = (
                self.force_rate and uniforms(1, *attempt.request.rng_key, "force").item() < self.force_rate
            )
            if chosen and len(self.forced_ids) <= room:
                attempt.force_prefix(self.forced_ids)
        return self.engine.generate([self._request(attempt) for attempt in attempts], self.sampling_params)

    def _request(self, attempt: Attempt) -> Request:
        """Return the request for the next turn, with its grammar if it has one."""
        if self.grammars is None or not attempt.task.tools:
            return attempt.request
        return replace(
            attempt.request,
            make_matcher=partial(self.grammars.turn_matcher, attempt.dialogue, attempt.forced_ids),
        )


@dataclass(frozen=True, eq=False)
class DemonstrationTurns:
    """The tasks' demonstrations, encoded as the ids that the policy would sample."""

    chat: Chat
    version: int = 0
    weight_digest: str = ""

    def next_turns(self, attempts: Sequence[Attempt]) -> list[Completion]:
        """Return the next demonstrated turn of each attempt."""
        return [self._next(attempt) for attempt in attempts]

    def _next(self, attempt: Attempt) -> Completion:
        turns = demonstration_turns(attempt)
        if len(attempt.turns) == len(turns):
            raise DataError(
                f"the demonstration of task {attempt.task.task_id} ends before its episode does",
                got=f"{len(turns)} turns, then {attempt.dialogue.messages[-1]['content']!r:.200}",
                expected="a last turn that ends the episode",
            )
        message, dialogue = turns[len(attempt.turns)], attempt.dialogue
        ids = encode_reply(self.chat, dialogue.messages, message, dialogue.tools)
        origin = torch.full((len(ids),), Origin.DEMO, dtype=torch.uint8)
        return Completion(ids, origin, torch.full((len(ids),), torch.nan), None, FinishReason.DEMO)


def demonstration_turns(attempt: Attempt) -> tuple[AssistantMessage, ...]:
    """Return the turns of a task's demonstration."""
    demonstration = attempt.task.demonstration
    if demonstration is None:
        raise DataError(
            f"task {attempt.task.task_id} has no demonstration to train on",
            remedy="remove the sft stage, or give each training task a demonstration",
        )
    return (AssistantMessage(demonstration),) if isinstance(demonstration, str) else demonstration


def forced_prefix_ids(chat: Chat, text: str) -> Tensor:
    """Return the ids [F] of a text to prefill, as tokenized after other text."""
    ids, _ = encode_after(chat.tokenizer, ANCHOR, text)
    return torch.tensor(ids, dtype=torch.long)


def force_rate(limits: EpisodeConfig, step: int) -> float:
    """Return the share of turns to prefill at a step: constant, or falling linearly to 0."""
    share = max(0.0, 1 - step / limits.force_steps) if limits.force_steps else 1.0
    return limits.force_rate * share
