"""What the doctor looks at: an update as somebody's trainer made it. Anything may be wrong or missing.

A ``Step`` comes from a run's record, from the step just made, or from another trainer. Nothing in it is
checked: that is what rules are for. What was not recorded is absent, and a rule that needs it is NOT
CHECKED.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from truing.doctor.rule_inputs import INPUTS
from truing.types.sample import TurnSpan
from truing.types.sampling_params import SamplingParams


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a run declares of a stage; None is not known."""

    trainer: str = "truing"
    algo: str | None = None
    mask: str | None = None  # the declared mask policy, one of ops/masks.py
    group_size: int | None = None
    advantage_per: str | None = None  # episode, turn
    min_reward: float | None = None  # that rejection sampling keeps an answer for
    advantage: str | None = (
        None  # group, batch, none: what the centred reward is divided by; loo; gae; return
    )
    advantage_eps: float | None = None  # added to the deviation, reward units
    inner_steps: int | None = None  # updates per step
    on_policy: bool | None = None  # the first update is by the weights that drew, under one distribution
    surrogate: str | None = None  # clip, cispo, reinforce
    ratio: str | None = None  # token, sequence
    aggregation: str | None = None  # token_mean, sequence_mean, sequence_sum
    clip_low: float | None = None
    clip_high: float | None = None
    max_ratio: float | None = None
    kl_coef: float | None = None
    kl_where: str | None = None
    kl_estimator: str | None = None
    kl_weight: str | None = (
        None  # what the KL of a token is weighed by: detached (its ratio), ratio (live), none
    )
    entropy_coef: float | None = None
    gamma: float | None = None
    lam: float | None = None
    whiten: bool | None = None
    bootstraps: bool | None = None  # whether a cut end is worth what the critic says of it
    baseline: str | None = None  # of returns: step (the mean of all others), none
    truncated: str | None = None  # what becomes of cut attempts: keep, mask, penalize
    truncated_penalty: float | None = None  # reward units
    overlong_tokens: int | None = None  # last tokens before the limit over which a turn costs more and more
    overlong_penalty: float | None = None  # what the longest possible turn costs, reward units
    min_ratio: float | None = None  # tokens with a smaller ratio are left out of the policy loss
    most_ratio: float | None = None  # and those with a larger one
    correction: str | None = None  # what weighs tokens by old ÷ sampler: off, truncate, mask, sequence
    correction_low: float | None = None
    correction_high: float | None = None
    plain: bool | None = None  # no gate, correction or shaping that re-weights tokens or rewards
    reference_moves: bool | None = None  # whether syncs of the reference are declared
    dropout: bool | None = None
    lora: bool | None = None
    stop_ids: tuple[int, ...] | None = None
    bos_id: int | None = None  # −1 where sequences begin with none
    max_new_tokens: int | None = None
    learning_rate: float | None = None  # the peak
    warmup_steps: int | None = None
    schedule: str | None = None  # constant, linear, cosine
    steps: int | None = None  # of the stage
    max_grad_norm: float | None = None
    logged_every: int | None = 1  # updates that a step's numbers are means over
    tools: tuple[str, ...] | None = None  # names that the world knows
    max_turns: int | None = None  # of an attempt
    reward_weights: Mapping[str, float] | None = None  # by the name of the part


@dataclass(frozen=True, eq=False, kw_only=True)
class Row:
    """What is known of one sequence as a whole."""

    sample_id: str
    rollout_id: str
    group_id: str
    task_id: str
    family: str
    prompt_hash: str
    prompt_length: int
    turns: tuple[TurnSpan, ...]
    contract: SamplingParams | None
    reward: float  # NaN where there is none
    reward_parts: Mapping[str, float]
    status: str
    truncated: bool
    text: str  # what the grader was given
    inner_step: int  # of which update these are the numbers; −1 where it was in none
    kept: bool = True  # whether the update trains on it
    messages: tuple[Mapping[str, Any], ...] = ()
    bootstrap_value: float = float("nan")
    ended_by: str = ""  # an ``EndedBy``; "" is not known


@dataclass(frozen=True, eq=False)
class Past:
    """What is kept of an earlier step."""

    stage: str
    step: int
    numbers: Mapping[str, float]
    facts: Mapping[str, Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class Step:
    """One update. Streams hold the N tokens of all rows, one row after the other."""

    stage: str
    step: int
    setup: Setup
    rows: Sequence[Row]
    lengths: Sequence[int]
    tokens: Mapping[str, Tensor]  # name of a stream → [N]
    numbers: Mapping[str, float]  # metrics, as the trainer tells them
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])  # measured beside the update
    past: Sequence[Past] = ()  # all updates before, oldest first

    @cached_property
    def row_of_token(self) -> Tensor:
        """Which row each token is of: [N] int64."""
        return torch.repeat_interleave(torch.tensor(self.lengths, dtype=torch.int64))

    @cached_property
    def starts(self) -> list[int]:
        """Where each row begins among the N tokens."""
        total, starts = 0, []
        for length in self.lengths:
            starts.append(total)
            total += length
        return starts

    @cached_property
    def position_in_row(self) -> Tensor:
        """Index of each token within its row: [N] int64."""
        starts = torch.tensor(self.starts, dtype=torch.int64)
        return torch.arange(len(self.row_of_token)) - starts[self.row_of_token]

    @property
    def is_first_of_stage(self) -> bool:
        """Whether it is the first update of its stage."""
        return not self.past_of_stage

    @cached_property
    def past_of_stage(self) -> list[Past]:
        """The updates before, of the same stage."""
        return [past for past in self.past if past.stage == self.stage]

    def slices(self) -> Iterator[tuple[int, Row, slice]]:
        """Each row with its index and its part of the streams."""
        for index, (row, start, length) in enumerate(zip(self.rows, self.starts, self.lengths, strict=True)):
            yield index, row, slice(start, start + length)

    def has(self, need: str) -> bool:
        """Whether an input is there: a stream, `setup.…`, `facts.…`, `numbers.…` or `row.…`; or `a | b`."""
        if " | " in need:
            return any(self.has(either) for either in need.split(" | "))
        kind, _, name = need.rpartition(".")
        if kind == "setup":
            return getattr(self.setup, name) is not None
        if kind == "row":
            return any(_known(getattr(row, name)) for row in self.rows)
        return name in {"facts": self.facts, "numbers": self.numbers, "": self.tokens}[kind]

    def missing(self, needs: Sequence[str]) -> list[str]:
        """What is not there, in words."""
        return [INPUTS[need] for need in needs if not self.has(need)]


def _known(value: Any) -> bool:
    """Whether a fact of a row says anything: a number that is not NaN, a text or list that is not empty."""
    return value == value and value not in ("", (), None)
