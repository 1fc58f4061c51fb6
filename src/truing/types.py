"""The journey of a token, as data.

    Task ──▶ Turn* ──▶ Rollout ──▶ RolloutGroup ──▶ Sample ──▶ Batch ──▶ StepRecord

Everything is frozen: a stage that adds something makes a new object. A ``Sample`` holds per-token
streams of one length; index ``t`` always speaks of ``token_ids[t]``. What was not recorded is NaN,
never 0. Shape suffixes (T tokens, B samples, K ids of a support) are listed in docs/notation.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor

from truing.contract import SamplingContract
from truing.errors import ContractError
from truing.messages import Message, Said, ToolSpec
from truing.outcomes import EndedBy, FinishReason, Status


class Origin(IntEnum):
    """Where a token came from. Masks derive from this and from nothing else."""

    PROMPT = 0  # the task's own messages
    TEMPLATE = 1  # glue that a chat template inserts
    TOOL = 2  # what an environment answered
    FORCED = 3  # injected, or the only token a grammar allowed
    SAMPLED = 4  # the policy's choice
    DEMO = 5  # a demonstration: trained by supervised terms only, has no sampler log-probability


class Excluded(IntEnum):
    """Why a token is not under policy terms; what was not sampled never is."""

    NO = 0  # it is: the policy chose it, and the declared mask policy keeps it
    NOT_SAMPLED = 1
    STRUCTURE = 2  # scaffolding of a tool call, under mask = "no_structure"
    FORCED_ACTION = 3  # its turn began with forced tokens, under mask = "action"
    NOT_KEPT = 4  # its rollout failed, earned too little for rejection sampling, or its group was left out
    CUT = 5  # its rollout was cut, under gates.truncated = "mask"


@dataclass(frozen=True)
class Task:
    """One thing to do: the messages the policy sees, and what a grader needs to judge the answer."""

    task_id: str
    family: str
    messages: tuple[Message, ...]
    answer: Any = None
    demonstration: str | tuple[Said, ...] | None = None  # what the policy should say, turn by turn
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True, eq=False)
class Support:
    """For each of T tokens, the ids it could have been drawn from: ``ids[splits[t]:splits[t+1]]``.

    An empty slice means the whole vocabulary. Where that is shorter, the ids that it could *not* have been
    are told instead, each ``id`` as ``-1 - id``; a slice is of one kind.
    """

    ids: Tensor  # [sum of K] int32
    splits: Tensor  # [T + 1] int64

    def at(self, t: int) -> Tensor:
        """What token ``t`` could have been, [K]; empty where nothing was cut. ``support_mask`` reads it."""
        return self.ids[self.splits[t] : self.splits[t + 1]]


@dataclass(frozen=True, eq=False)
class Turn:
    """One call of the sampler: the ids it was shown since the last turn, and the ids it drew.

    Where the chat template wrote the past otherwise than it was said, ``restarts`` tells how:
    ``context_ids`` is then the whole prompt anew, and a new sample begins.
    """

    context_ids: Tensor  # [C] int64, PROMPT, TEMPLATE, TOOL or FORCED
    context_origin: Tensor  # [C] uint8
    token_ids: Tensor  # [L] int64
    origin: Tensor  # [L] uint8, SAMPLED, or FORCED where a grammar left one choice, or all DEMO
    structure: Tensor  # [L] bool, scaffolding of tool calls
    sampler_logprob: Tensor  # [L] float32, as drawn, under the contract
    finish_reason: FinishReason
    sampler_version: int
    weight_digest: str
    support: Support | None = None
    restarts: str = ""

    def __post_init__(self) -> None:
        _same_length("Turn context", context_ids=self.context_ids, context_origin=self.context_origin)
        drawn = {
            name: getattr(self, name) for name in ("token_ids", "origin", "structure", "sampler_logprob")
        }
        _same_length("Turn", **drawn)


@dataclass(frozen=True, eq=False)
class Rollout:
    """One attempt at a task: its turns, what was said, what became of the world, and what it earned."""

    rollout_id: str
    group_id: str
    task: Task
    turns: tuple[Turn, ...]
    text: str  # what the policy said last, without its stop token
    status: Status
    contract: SamplingContract
    reward: float = float("nan")
    reward_parts: Mapping[str, float] = field(default_factory=dict[str, float])
    turn_rewards: tuple[float, ...] = ()  # each turn's share of the reward; none where turns are not judged
    messages: tuple[Message, ...] = ()  # what was said after the prompt, by the policy and by the world
    outcome: Mapping[str, Any] = field(default_factory=dict[str, Any])  # the world's final state
    ended_by: EndedBy = EndedBy.WORLD
    error: str = ""  # the traceback, where it failed


@dataclass(frozen=True, eq=False)
class RolloutGroup:
    """Attempts at one task that share a baseline."""

    group_id: str
    task: Task
    rollouts: tuple[Rollout, ...]

    def __post_init__(self) -> None:
        strangers = {r.group_id for r in self.rollouts} - {self.group_id}
        if strangers:
            raise ContractError(
                "a group holds rollouts of other groups", got=sorted(strangers), expected=self.group_id
            )


@dataclass(frozen=True)
class TurnSpan:
    """Where a turn's own tokens lie in a sample, and who drew them."""

    start: int
    end: int
    finish_reason: FinishReason
    sampler_version: int
    weight_digest: str
    reward: float = float("nan")  # the turn's share of the rollout's; NaN where turns are not judged


MASKS = ("structure", "policy_mask", "kl_mask", "value_mask", "supervised_mask")
NUMBERS = ("sampler_logprob", "old_logprob", "ref_logprob", "value", "advantage", "returns")


@dataclass(frozen=True, eq=False, kw_only=True)
class Sample:
    """One row to train on: T tokens, and everything known of each.

    Masks are separate by use: policy terms ⊆ SAMPLED, supervised terms ⊆ DEMO. ``value[t]`` is V of
    the state *before* ``token_ids[t]``. A number that was not recorded is NaN.
    """

    sample_id: str
    rollout_id: str
    group_id: str
    task_id: str
    family: str
    prompt_hash: str
    prompt_length: int  # tokens before the first that was sampled or demonstrated
    turns: tuple[TurnSpan, ...]
    contract: SamplingContract
    old_source: str  # where old_logprob comes from: "sampler", "recomputed", or "" where absent
    reward: float
    truncated: bool  # the rollout was cut off where this sample ends
    bootstrap_value: float  # V of the state after a truncated end; NaN where the episode ended
    token_ids: Tensor  # [T] int64, exactly what the sampler saw and produced
    origin: Tensor  # [T] uint8
    structure: Tensor  # [T] bool, tool-call scaffolding among SAMPLED tokens
    excluded: Tensor  # [T] uint8, why a token is not in policy_mask: an ``Excluded`` per token
    policy_mask: Tensor  # [T] bool
    kl_mask: Tensor  # [T] bool
    value_mask: Tensor  # [T] bool
    supervised_mask: Tensor  # [T] bool
    sampler_logprob: Tensor  # [T] float32, under the contract, as drawn
    old_logprob: Tensor  # [T] float32, the clipping reference
    ref_logprob: Tensor  # [T] float32, under the same contract and support
    value: Tensor  # [T] float32
    advantage: Tensor  # [T] float32
    returns: Tensor  # [T] float32
    support: Support | None

    @classmethod
    def bare(cls, *, token_ids: Tensor, origin: Tensor, **known: Any) -> "Sample":
        """A sample with what is ``known``; every other mask is False and every other number NaN."""
        length = len(token_ids)
        blank: dict[str, Any] = {name: torch.zeros(length, dtype=torch.bool) for name in MASKS}
        blank |= {name: torch.full((length,), float("nan")) for name in NUMBERS}
        blank |= {"old_source": "", "reward": float("nan"), "bootstrap_value": float("nan")}
        blank |= {"truncated": False, "support": None}
        in_policy = known.get("policy_mask", blank["policy_mask"])
        blank["excluded"] = torch.where(in_policy, Excluded.NO, Excluded.NOT_SAMPLED).to(torch.uint8)
        return cls(token_ids=token_ids, origin=origin, **(blank | known))

    def __post_init__(self) -> None:
        named = ("token_ids", "origin", "excluded", *MASKS, *NUMBERS)
        _same_length(f"Sample {self.sample_id}", **{name: getattr(self, name) for name in named})
        if not torch.equal(self.policy_mask, self.excluded == Excluded.NO):
            raise ContractError(
                f"sample {self.sample_id} leaves tokens out of the policy mask without a reason, or gives one"
                " for tokens that it keeps",
                expected="excluded = NO exactly where policy_mask is on",
            )
        if not 1 <= self.prompt_length <= len(self.token_ids):
            what = f"sample {self.sample_id} has no prompt to predict its first token from"
            raise ContractError(what, got=self.prompt_length, expected=f"1 to {len(self.token_ids)}")
        _only_from(self, "policy_mask", Origin.SAMPLED)
        _only_from(self, "supervised_mask", Origin.DEMO)
        if self.support is not None and len(self.support.splits) != len(self.token_ids) + 1:
            raise ContractError(
                f"the support of sample {self.sample_id} does not cover its tokens",
                got=f"{len(self.support.splits)} splits",
                expected=f"{len(self.token_ids) + 1}",
            )

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, eq=False, kw_only=True)
class Batch:
    """Samples as tensors [B, T], padded on the right; ``valid`` tells tokens from pads.

    Numbers are 0 where a pad is, so that a mask can multiply them away; NaN stays where a number was
    not recorded. Nothing is shifted: ``logprob[b, t]`` is of ``token_ids[b, t]``.
    """

    samples: tuple[Sample, ...]
    token_ids: Tensor
    valid: Tensor
    policy_mask: Tensor
    kl_mask: Tensor
    value_mask: Tensor
    supervised_mask: Tensor
    sampler_logprob: Tensor
    old_logprob: Tensor
    ref_logprob: Tensor
    value: Tensor
    advantage: Tensor
    returns: Tensor

    def __post_init__(self) -> None:
        shape = self.token_ids.shape
        for item in fields(self)[1:]:
            got = getattr(self, item.name).shape
            if got != shape:
                raise ContractError(
                    f"Batch.{item.name} has another shape", got=tuple(got), expected=tuple(shape)
                )


@dataclass(frozen=True, eq=False)
class Scores:
    """What one forward says of a Batch, each [B, T] and 0 where nothing was asked for."""

    logprob: Tensor  # under the sample's own contract
    entropy: Tensor  # of the distribution that was drawn from, nats
    raw_entropy: Tensor  # of the model's own distribution, nats; no gradient
    value: Tensor | None = None  # of the state before each token, reward units; None without a critic
    below: Tensor | None = None  # probability of all lower ids, NaN where it was not asked for; no gradient


@dataclass(frozen=True, eq=False)
class StepRecord:
    """One update as the run directory keeps it."""

    step: int
    stage: str
    metrics: Mapping[str, float]
    loss_label: str
    samples: tuple[Sample, ...]
    seconds: Mapping[str, float]
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])  # what the doctor judges beside metrics


def _only_from(sample: Sample, mask: str, home: Origin) -> None:
    """Raise where a mask is on at a token of another origin."""
    outside = (getattr(sample, mask) & (sample.origin != home)).nonzero()
    if len(outside):
        t = int(outside[0])
        got = Origin(int(sample.origin[t])).name
        what = f"{mask} of sample {sample.sample_id} is on at token {t}"
        raise ContractError(what, got=got, expected=home.name)


def _same_length(owner: str, **streams: Tensor) -> None:
    """Raise unless all streams are vectors of one length."""
    shapes = {name: tuple(stream.shape) for name, stream in streams.items()}
    if any(len(shape) != 1 for shape in shapes.values()) or len(set(shapes.values())) > 1:
        raise ContractError(
            f"{owner}: per-token streams differ in shape", got=shapes, expected="vectors of one length"
        )
