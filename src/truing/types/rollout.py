"""From a task to its rollouts: turns, a rollout, and the group that shares a baseline."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from truing.errors import InvalidValueError
from truing.types.message import AssistantMessage, Message, ToolSpec
from truing.types.model_call import WrittenAnswer
from truing.types.sampling_params import SamplingParams
from truing.types.status import EndedBy, FinishReason, Status
from truing.types.token import Support, check_routes, check_same_length


@dataclass(frozen=True)
class DemonstratedText:
    """A text to imitate as a whole, as its ids: all but the first ``context`` of them are trained.

    It has no prompt and no turns, so no chat template renders it, and its ids may be special tokens.
    """

    token_ids: tuple[int, ...]
    context: int


@dataclass(frozen=True)
class Task:
    """One task: the messages the policy sees, and what a grader needs to judge the answer."""

    task_id: str
    family: str
    messages: tuple[Message, ...]
    answer: Any = None
    # the policy's messages, turn by turn, or a whole text
    demonstration: str | tuple[AssistantMessage, ...] | DemonstratedText | None = None
    tools: tuple[ToolSpec, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])  # what else graders need, by name
    # variables of the chat template for this task, which count before the recipe's
    template_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    where: str = field(default="", compare=False)  # the row that it was read from


@dataclass(frozen=True, eq=False)
class Prompt:
    """A prompt: P ids, each PROMPT (task messages) or TEMPLATE (template text)."""

    token_ids: Tensor  # [P] int64
    origin: Tensor  # [P] uint8

    @property
    def hash(self) -> str:
        """A hash of the ids; one group has one hash."""
        return hash_of_ids(self.token_ids)


def hash_of_ids(token_ids: Tensor) -> str:
    """Return a hash of ids [T] int64: 16 hexadecimal digits."""
    return hashlib.sha256(token_ids.numpy().tobytes()).hexdigest()[:16]


FIRST_CONVERSATION = "the program's first conversation"
"""The reason of a sample that begins with a program's first call, where other samples come before it."""


@dataclass(frozen=True, eq=False)
class Turn:
    """One call of the sampler: the context ids added since the last turn, and the ids it sampled.

    ``restart_reason`` is set where the chat template re-rendered earlier turns differently, or where a
    program's history was edited or another conversation begins: ``context_ids`` is then the whole prompt, and
    a new sample begins.
    """

    context_ids: Tensor  # [C] int64, PROMPT, TEMPLATE, TOOL or FORCED
    context_origin: Tensor  # [C] uint8
    token_ids: Tensor  # [L] int64
    origin: Tensor  # [L] uint8, SAMPLED, or FORCED where a grammar left one choice, or all DEMO
    structure: Tensor  # [L] bool, call syntax of tool calls
    sampler_logprob: Tensor  # [L] float32, as sampled, under the sampling parameters
    finish_reason: FinishReason
    sampler_version: int
    weight_digest: str
    support: Support | None = None
    restart_reason: str = ""
    # [1 + C + L, layers, K] int16, the experts that the engine selected for the id before the context, the
    # context and the sampled ids; −1 where it recorded none, as for the last id of an answer, which the
    # engine computes with the next turn. None for a dense model, or if the engine returns no routes
    routes: Tensor | None = None
    prompt_hash: str = ""  # of all ids that the engine read before the turn; "" where no engine sampled it
    call: int = 0  # the number of the program's call that it answers, from 1; 0 without a program
    trained: bool = True  # False for a conversation of a program that the recipe does not train

    def __post_init__(self) -> None:
        check_same_length("Turn context", context_ids=self.context_ids, context_origin=self.context_origin)
        streams = {
            name: getattr(self, name) for name in ("token_ids", "origin", "structure", "sampler_logprob")
        }
        check_same_length("Turn", **streams)
        check_routes("a turn", self.routes, 1 + len(self.context_ids) + len(self.token_ids))


@dataclass(frozen=True, eq=False)
class Rollout:
    """One episode of the policy on a task: turns, messages, the environment's final state, reward."""

    rollout_id: str
    group_id: str
    task: Task
    turns: tuple[Turn, ...]
    text: str  # the policy's last turn, without its stop token
    status: Status
    sampling_params: SamplingParams
    reward: float = float("nan")
    reward_parts: Mapping[str, float] = field(default_factory=dict[str, float])
    turn_rewards: tuple[float, ...] = ()  # each turn's share of the reward; none where turns are not judged
    messages: tuple[Message, ...] = ()  # after the prompt, by the policy and the environment
    # of a program's rollout, whose conversations differ: all messages of each sample
    sample_messages: tuple[tuple[Message, ...], ...] = ()
    sample_tools: tuple[tuple[ToolSpec, ...], ...] = ()  # and the tools of each
    answers: tuple[WrittenAnswer, ...] = ()  # that its program got, as the endpoint wrote them
    crashed: bool = False  # whether its program crashed, as the thread saw that ran it
    # of the environment's messages (not of a program's), and at the end of the outcome, as the rollout's own
    # episode gave them
    reply_hashes: tuple[str, ...] = ()
    outcome: Mapping[str, Any] = field(default_factory=dict[str, Any])  # the environment's final state
    ended_by: EndedBy = EndedBy.ENVIRONMENT
    error: str = ""  # the traceback of a failed rollout

    @property
    def received(self) -> list[Message]:
        """The messages of the environment; none of a program, which writes its own."""
        read = () if self.sample_messages else self.messages
        return [each for each in read if each["role"] != "assistant"]


@dataclass(frozen=True, eq=False)
class RolloutGroup:
    """Rollouts of one task that share a baseline."""

    group_id: str
    task: Task
    rollouts: tuple[Rollout, ...]

    def __post_init__(self) -> None:
        other_groups = {r.group_id for r in self.rollouts} - {self.group_id}
        if other_groups:
            raise InvalidValueError(
                "a group holds rollouts of other groups", got=sorted(other_groups), expected=self.group_id
            )
