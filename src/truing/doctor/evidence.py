"""The doctor's input: an update of any trainer. Anything may be wrong or missing.

A ``Step`` comes from a run's record, from the update of a running trainer, or from another trainer. Nothing
in it is validated: that is the task of rules. A missing value is absent, and a rule that needs it is NOT
CHECKED.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from truing.doctor.history import FIRST, Dropped, Past
from truing.doctor.rule_inputs import INPUTS
from truing.types.sample import TurnSpan
from truing.types.sampling_params import SamplingParams


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Declared settings of a stage; None is unknown."""

    trainer: str = "truing"
    algo: str | None = None
    shaping: tuple[str, ...] = ()  # parts of the reward that only shape it
    mask: str | None = None  # the declared mask policy, one of ops/masks.py
    group_size: int | None = None
    advantage_per: str | None = None  # episode, turn
    min_reward: float | None = None  # threshold of rejection sampling
    advantage: str | None = (
        None  # group, batch, none (the denominator of the centred reward); loo; gae; return
    )
    advantage_eps: float | None = None  # added to the deviation, reward units
    inner_steps: int | None = None  # updates per step
    ahead: int = 0  # declared updates between the weights that sample and those that train
    on_policy: bool | None = None  # the first update has the sampler's weights and distribution
    surrogate: str | None = None  # clip, cispo, reinforce
    # of a token; of a sequence: the geometric mean or the product of its tokens'
    ratio: str | None = None  # token, sequence, product
    # token_mean, rank_token_mean, sequence_mean, sequence_sum; sequence_total: not divided by a budget
    aggregation: str | None = None
    clip_low: float | None = None
    clip_high: float | None = None
    max_ratio: float | None = None
    kl_coef: float | None = None
    kl_where: str | None = None
    kl_estimator: str | None = None
    kl_weight: str | None = None  # weight of a token's KL: detached (its ratio), ratio (live), none
    entropy_coef: float | None = None
    gamma: float | None = None
    lam: float | None = None
    whiten: bool | None = None
    bootstraps: bool | None = None  # whether a cut end counts with the critic's value
    baseline: str | None = None  # of returns: step (the mean of all others), none
    truncated: str | None = None  # handling of cut attempts: keep, mask, penalize
    truncated_penalty: float | None = None  # reward units
    overlong_tokens: int | None = None  # last tokens before the limit, with a growing penalty
    overlong_penalty: float | None = None  # penalty of the longest possible turn, reward units
    min_ratio: float | None = None  # tokens with a smaller ratio are left out of the policy loss
    most_ratio: float | None = None  # and those with a larger one
    correction: str | None = None  # weight by old ÷ sampler: a method of ops/correction.py, or off
    correction_low: float | None = None
    correction_high: float | None = None
    plain: bool | None = None  # no gate, correction or shaping that re-weights tokens or rewards
    reference_moves: bool | None = None  # whether the recipe declares syncs of the reference
    dropout: bool | None = None
    lora: bool | None = None
    stop_ids: tuple[int, ...] | None = None
    bos_id: int | None = None  # −1 if sequences begin without one
    max_new_tokens: int | None = None
    left_out: tuple[str, ...] = ()  # declared sampling settings that the trained log-probabilities leave out
    learning_rate: float | None = None  # the peak
    warmup_steps: int | None = None
    schedule: str | None = None  # constant, linear, cosine
    steps: int | None = None  # of the stage
    max_grad_norm: float | None = None
    logged_every: int | None = 1  # updates in the mean of a step's numbers
    tools: tuple[str, ...] | None = None  # tool names of the environment
    max_turns: int | None = None  # of an attempt
    reward_weights: Mapping[str, float] | None = None  # by the name of the part
    columns: Mapping[str, str] = field(default_factory=dict[str, str])  # a log's own names of numbers


@dataclass(frozen=True, eq=False, kw_only=True)
class Row:
    """The known properties of one sequence."""

    sample_id: str
    rollout_id: str
    group_id: str
    task_id: str
    family: str
    prompt_hash: str
    prompt_length: int
    turns: tuple[TurnSpan, ...]
    sampling_params: SamplingParams | None
    reward: float  # NaN without one
    reward_parts: Mapping[str, float]
    status: str
    truncated: bool
    text: str  # the graded text
    inner_step: int  # the update of these numbers; −1 if it was in none
    kept: bool = True  # whether the update trains on it
    messages: tuple[Mapping[str, Any], ...] = ()
    bootstrap_value: float = float("nan")
    ended_by: str = ""  # an ``EndedBy``; "" is unknown


@dataclass(frozen=True, eq=False, kw_only=True)
class Step:
    """One update. Streams hold the N tokens of all rows, one row after the other."""

    stage: str
    step: int
    setup: Setup
    rows: Sequence[Row]
    lengths: Sequence[int]
    tokens: Mapping[str, Tensor]  # name of a stream → [N]
    numbers: Mapping[str, float]  # metrics of the trainer
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])  # measured with the update
    past: Sequence[Past] = ()  # the kept earlier updates, oldest first
    dropped: Mapping[str, Dropped] = field(default_factory=dict[str, Dropped])  # the others, by stage

    @cached_property
    def row_of_token(self) -> Tensor:
        """Return the row of each token: [N] int64."""
        return torch.repeat_interleave(torch.tensor(self.lengths, dtype=torch.int64))

    @cached_property
    def starts(self) -> list[int]:
        """Return the first index of each row among the N tokens."""
        total, starts = 0, []
        for length in self.lengths:
            starts.append(total)
            total += length
        return starts

    @cached_property
    def position_in_row(self) -> Tensor:
        """Return the index of each token within its row: [N] int64."""
        starts = torch.tensor(self.starts, dtype=torch.int64)
        return torch.arange(len(self.row_of_token)) - starts[self.row_of_token]

    @cached_property
    def rank_of_row(self) -> Tensor:
        """Return the rank that computed each row: [B] int64; −1 if unknown, the last of several."""
        updates = [each["of_rank"] for each in self.facts.get("ranks", {}).get("rows", [])]
        owner = {name: rank for of_rank in updates for rank, names in enumerate(of_rank) for name in names}
        return torch.tensor([owner.get(row.sample_id, -1) for row in self.rows], dtype=torch.int64)

    @property
    def is_first_of_stage(self) -> bool:
        """Return whether it is the first update of its stage."""
        return not self.past_of_stage

    @cached_property
    def past_of_stage(self) -> list[Past]:
        """Return the kept earlier updates of the same stage: its first and last ones."""
        return [past for past in self.past if past.stage == self.stage]

    @cached_property
    def latest(self) -> list[Past]:
        """Return those directly before this update, without a gap."""
        return self.past_of_stage[FIRST if self.stage in self.dropped else 0 :]

    @property
    def updates_before(self) -> int:
        """Return the number of earlier updates of the same stage."""
        return len(self.past_of_stage) + self.dropped.get(self.stage, Dropped()).updates

    @property
    def updates_of_run(self) -> int:
        """Return the number of earlier updates of all stages."""
        return len(self.past) + sum(each.updates for each in self.dropped.values())

    def slices(self) -> Iterator[tuple[int, Row, slice]]:
        """Yield each row with its index and its part of the streams."""
        for index, (row, start, length) in enumerate(zip(self.rows, self.starts, self.lengths, strict=True)):
            yield index, row, slice(start, start + length)

    def rollouts(self) -> list[list[tuple[int, Row, slice]]]:
        """Return the rows of each rollout in the order of its turns, as ``slices`` yields them.

        An update may compute them in another order. ``ROLLOUT#2`` is the third row of a rollout.
        """
        rollouts: dict[str, list[tuple[int, int, Row, slice]]] = {}
        for index, row, part in self.slices():
            number = row.sample_id.rpartition("#")[2] if "#" in row.sample_id else ""
            place = int(number) if number.isdecimal() else index
            rollouts.setdefault(row.rollout_id, []).append((place, index, row, part))
        return [[each[1:] for each in sorted(rows, key=lambda each: each[:2])] for rows in rollouts.values()]

    def has(self, need: str) -> bool:
        """Return whether an input is there: a stream, `setup.…`, `facts.…`, `numbers.…`, `row.…`, `a | b`.

        A number that is not finite is not there: no rule can be clean on it.
        """
        if " | " in need:
            return any(self.has(either) for either in need.split(" | "))
        kind, _, name = need.rpartition(".")
        match kind:
            case "setup":
                return getattr(self.setup, name) is not None
            case "row":
                return any(_known(getattr(row, name)) for row in self.rows)
            case "numbers":
                return math.isfinite(self.numbers.get(name, math.nan))
            case _:
                return name in {"facts": self.facts, "": self.tokens}[kind]

    def missing(self, needs: Sequence[str]) -> list[str]:
        """Return the missing inputs, as text."""
        return [INPUTS[need] for need in needs if not self.has(need)]

    def not_finite(self, needs: Sequence[str]) -> list[str]:
        """Return those of the missing inputs that have a number, which is NaN or infinite, as text."""
        return [INPUTS[need] for need in needs if not self.has(need) and self._has_number(need)]

    def _has_number(self, need: str) -> bool:
        """Return whether a need, or one of its alternatives, is a number of this step."""
        return any(either.removeprefix("numbers.") in self.numbers for either in need.split(" | "))


def _known(value: Any) -> bool:
    """Return whether a property of a row is known: finite, and not an empty text or list."""
    return math.isfinite(value) if isinstance(value, float) else value not in ("", (), None)
