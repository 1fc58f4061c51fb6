"""A sample, which is one training sequence: what is known of it, and its tokens."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from truing.errors import InvalidValueError
from truing.types.message import Message
from truing.types.sampling_params import SamplingParams
from truing.types.status import FinishReason
from truing.types.token import Excluded, Origin, Support, check_routes, check_same_length


@dataclass(frozen=True)
class TurnSpan:
    """The tokens of a turn within a sample, and the weights that sampled them."""

    start: int
    end: int
    finish_reason: FinishReason
    sampler_version: int
    weight_digest: str
    reward: float = math.nan  # the turn's share of the rollout's; NaN where turns are not judged
    call: int = 0  # the number of the program's call that it answers, from 1; 0 without a program


MASKS = ("structure", "policy_mask", "kl_mask", "value_mask", "supervised_mask")
FLOAT_STREAMS = ("sampler_logprob", "old_logprob", "ref_logprob", "value", "advantage", "returns")


@dataclass(frozen=True, eq=False, kw_only=True)
class SampleFacts:
    """What is known of one sample besides its tokens; of another trainer's some is unknown."""

    sample_id: str
    rollout_id: str
    group_id: str
    task_id: str
    family: str
    prompt_hash: str
    prompt_length: int  # tokens before the first SAMPLED or DEMO token
    turns: tuple[TurnSpan, ...]
    sampling_params: SamplingParams | None
    reward: float  # of its rollout; NaN without one
    truncated: bool  # the rollout was cut off where this sample ends
    old_source: str = ""  # where old_logprob comes from: "sampler", "recomputed", or "" where absent
    bootstrap_value: float = math.nan  # V of the state after a truncated end; NaN where the episode ended
    reward_parts: Mapping[str, float] = field(default_factory=dict[str, float])
    text: str = ""  # of the rollout, as it was graded
    status: str = ""  # a ``Status``; "" is unknown
    ended_by: str = ""  # an ``EndedBy``; "" is unknown
    messages: tuple[Message, ...] = ()  # of the prompt, then of the rollout
    outcome: Mapping[str, Any] = field(default_factory=dict[str, Any])  # the environment's final state
    error: str = ""

    @property
    def number(self) -> int:
        """Return its place among the samples of its rollout, from 0: ``ROLLOUT#2`` is the third one."""
        number = self.sample_id.rpartition("#")[2] if "#" in self.sample_id else ""
        return int(number) if number.isdecimal() else 0

    @property
    def begins_with_task(self) -> bool:
        """Return whether a rollout begins with it, and with its task's prompt: a program writes its own."""
        return self.number == 0 and not any(turn.call for turn in self.turns)


@dataclass(frozen=True, eq=False, kw_only=True)
class Sample(SampleFacts):
    """One training sequence: T tokens, with everything recorded for each.

    Masks are separate by use: policy terms ⊆ SAMPLED, supervised terms ⊆ DEMO. ``value[t]`` is V of
    the state *before* ``token_ids[t]``. A missing number is NaN.
    """

    sampling_params: SamplingParams
    token_ids: Tensor  # [T] int64, exactly what the sampler saw and produced
    origin: Tensor  # [T] uint8
    structure: Tensor  # [T] bool, tool-call syntax among SAMPLED tokens
    excluded: Tensor  # [T] uint8, why a token is not in policy_mask: an ``Excluded`` per token
    policy_mask: Tensor  # [T] bool
    kl_mask: Tensor  # [T] bool
    value_mask: Tensor  # [T] bool
    supervised_mask: Tensor  # [T] bool
    sampler_logprob: Tensor  # [T] float32, as sampled, under the sampling parameters
    old_logprob: Tensor  # [T] float32, the clipping reference
    ref_logprob: Tensor  # [T] float32, under the same sampling parameters and support
    value: Tensor  # [T] float32
    advantage: Tensor  # [T] float32
    returns: Tensor  # [T] float32
    support: Support | None
    # [T, layers, K] int16, the experts that each decoder layer of the engine selected for a token; −1 where
    # none is recorded. None for a dense model, or if the engine returns no routes
    routes: Tensor | None = None

    @classmethod
    def with_defaults(cls, *, token_ids: Tensor, origin: Tensor, **fields: Any) -> "Sample":
        """Return a sample with the given ``fields``; every other mask is False and every other number NaN."""
        length = len(token_ids)
        defaults: dict[str, Any] = {name: torch.zeros(length, dtype=torch.bool) for name in MASKS}
        defaults |= {name: torch.full((length,), math.nan) for name in FLOAT_STREAMS}
        defaults |= {"reward": math.nan, "truncated": False, "support": None}
        in_policy = fields.get("policy_mask", defaults["policy_mask"])
        defaults["excluded"] = torch.where(in_policy, Excluded.NO, Excluded.NOT_SAMPLED).to(torch.uint8)
        return cls(token_ids=token_ids, origin=origin, **(defaults | fields))

    def __post_init__(self) -> None:
        streams = ("token_ids", "origin", "excluded", *MASKS, *FLOAT_STREAMS)
        check_same_length(f"Sample {self.sample_id}", **{name: getattr(self, name) for name in streams})
        if not torch.equal(self.policy_mask, self.excluded == Excluded.NO):
            raise InvalidValueError(
                f"sample {self.sample_id}: the policy mask disagrees with the reasons for exclusion",
                expected="excluded = NO exactly where policy_mask is on",
            )
        if not 1 <= self.prompt_length <= len(self.token_ids):
            what = f"sample {self.sample_id} has no token before its first target"
            raise InvalidValueError(what, got=self.prompt_length, expected=f"1 to {len(self.token_ids)}")
        _check_only_from(self, "policy_mask", Origin.SAMPLED)
        _check_only_from(self, "supervised_mask", Origin.DEMO)
        if self.support is not None and len(self.support.splits) != len(self.token_ids) + 1:
            raise InvalidValueError(
                f"the support of sample {self.sample_id} does not cover its tokens",
                got=f"{len(self.support.splits)} splits",
                expected=f"{len(self.token_ids) + 1}",
            )
        check_routes(f"sample {self.sample_id}", self.routes, len(self.token_ids))

    def __len__(self) -> int:
        return len(self.token_ids)


def _check_only_from(sample: Sample, mask: str, origin: Origin) -> None:
    """Raise unless every token under a mask has the given origin."""
    outside = (getattr(sample, mask) & (sample.origin != origin)).nonzero()
    if len(outside):
        t = int(outside[0])
        got = Origin(int(sample.origin[t])).name
        what = f"{mask} of sample {sample.sample_id} is on at token {t}"
        raise InvalidValueError(what, got=got, expected=origin.name)
