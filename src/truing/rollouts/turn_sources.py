"""Who speaks in an attempt: the policy through its sampler, or a script of demonstrations."""

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
    """The sampler's turns. A share of them begins with ids [F] that the policy did not choose."""

    engine: LocalEngine
    sampling_params: SamplingParams
    forced_ids: Tensor
    force_rate: float = 0.0
    grammars: CallGrammars | None = None  # hold the calls of tasks with tools to their schemas

    @property
    def version(self) -> int:
        """Of the weights that the sampler holds."""
        return self.engine.version

    @property
    def weight_digest(self) -> str:
        """Of the weights that the sampler holds."""
        return self.engine.weight_digest

    def next_turns(self, attempts: Sequence[Attempt]) -> list[Completion]:
        """One drawn turn for each seat."""
        for seat in attempts:
            room = (
                self.engine.context_length
                - self.sampling_params.max_new_tokens
                - len(seat.request.prompt_ids)
            )
            chosen = self.force_rate and uniforms(1, *seat.request.rng_key, "force").item() < self.force_rate
            if (
                chosen and len(self.forced_ids) <= room
            ):  # a turn that has no room for the prefix goes without it
                seat.force_prefix(self.forced_ids)
        return self.engine.generate([self._request(seat) for seat in attempts], self.sampling_params)

    def _request(self, attempt: Attempt) -> Request:
        """The turn to draw, with its grammar where it has one."""
        if self.grammars is None or not attempt.task.tools:
            return attempt.request
        return replace(
            attempt.request,
            make_matcher=partial(self.grammars.turn_matcher, attempt.dialogue, attempt.forced_ids),
        )


@dataclass(frozen=True, eq=False)
class DemonstrationTurns:
    """The demonstrations of the tasks, with the ids that the policy would draw to say them."""

    chat: Chat
    version: int = 0
    weight_digest: str = ""

    def next_turns(self, attempts: Sequence[Attempt]) -> list[Completion]:
        """The next demonstrated turn of each seat."""
        return [self._next(seat) for seat in attempts]

    def _next(self, attempt: Attempt) -> Completion:
        script = demonstration_turns(attempt)
        if len(attempt.turns) == len(script):
            raise DataError(
                f"the demonstration of task {attempt.task.task_id} ends before its episode does",
                got=f"{len(script)} turns, then {attempt.dialogue.messages[-1]['content']!r:.200}",
                expected="a last turn after which the world has nothing more to say",
            )
        said, dialogue = script[len(attempt.turns)], attempt.dialogue
        ids = encode_reply(self.chat, dialogue.messages, said, dialogue.tools)
        origin = torch.full((len(ids),), Origin.DEMO, dtype=torch.uint8)
        return Completion(ids, origin, torch.full((len(ids),), torch.nan), None, FinishReason.DEMO)


def demonstration_turns(attempt: Attempt) -> tuple[AssistantMessage, ...]:
    """What a task's demonstration says, turn by turn."""
    demonstration = attempt.task.demonstration
    if demonstration is None:
        raise DataError(
            f"task {attempt.task.task_id} has no demonstration to train on",
            remedy="leave the sft stage out, or give each training task a demonstration",
        )
    return (AssistantMessage(demonstration),) if isinstance(demonstration, str) else demonstration


def forced_prefix_ids(chat: Chat, text: str) -> Tensor:
    """The ids [F] of a text that turns are begun with, behind whatever stands before them."""
    ids, _ = encode_after(chat.tokenizer, ANCHOR, text)
    return torch.tensor(ids, dtype=torch.long)


def force_rate(limits: EpisodeConfig, step: int) -> float:
    """The share of turns to begin for the policy at a step: constant, or falling linearly to 0."""
    left = max(0.0, 1 - step / limits.force_steps) if limits.force_steps else 1.0
    return limits.force_rate * left
