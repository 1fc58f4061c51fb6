"""The doctor's input: a step of any trainer. Anything may be wrong or missing.

A ``Step`` comes from a run's record, from a running trainer, or from another trainer. Nothing in it is
validated: that is the task of rules. A missing value is absent, and a rule that needs it is NOT CHECKED.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from truing.analysis.stage_gain import StageGain
from truing.doctor.history import FIRST, Dropped, History
from truing.doctor.rule_inputs import INPUTS
from truing.metrics.definitions import is_metric
from truing.types.facts import Facts
from truing.types.passes import PASS_STREAMS, Passes
from truing.types.sample import SampleFacts
from truing.types.step_table import SAMPLE_STREAMS, StepNumbers, StepTable


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
    advantage: str | None = None  # a formula of oracle/credit.py, or gae, return
    advantage_eps: float | None = None  # added to the deviation, reward units
    inner_steps: int | None = None  # optimizer steps per step
    ahead: int = 0  # declared steps between the weights that sample and those that train
    on_policy: bool | None = None  # the first optimizer step has the sampler's weights and distribution
    surrogate: str | None = None  # clip, cispo, reinforce
    # of a token; of a sequence: the geometric mean or the product of its tokens'
    ratio: str | None = None  # token, sequence, product
    # token_mean, rank_token_mean, sequence_mean, sequence_sum; sequence_total: not divided by a budget;
    # generation_token_mean: a step has a part of a generation, whose tokens are counted
    aggregation: str | None = None
    generation_micro_batches: int | None = None  # of each rank
    clip_low: float | None = None
    clip_high: float | None = None
    # the largest ratio at a negative advantage: https://arxiv.org/abs/1912.09729
    dual_clip: float | None = None
    max_ratio: float | None = None
    loss_scale: float | None = 1.0  # factor of the whole loss, such as the number of ranks; None is unknown
    kl_coef: float | None = None
    kl_where: str | None = None
    kl_estimator: str | None = None
    # weight of a token's KL: none, detached (its ratio), ratio (live), score (1 with the gradient of a ratio)
    kl_weight: str | None = None
    entropy_coef: float | None = None
    kl_target: float | None = None  # nats per token, to which kl_coef adapts
    kl_horizon: int | None = None  # rollouts over which it changes by a fifth
    bootstrap_coef: float | None = None  # weight of the demonstrations beside rollouts in the first step
    bootstrap_steps: int | None = None  # after which it is 0
    equal_groups: str | None = None  # handling of groups of equal rewards: drop, resample
    min_trained_tokens: int | None = None  # of a step that is trained
    kl_cap: float | None = None  # nats per token, beyond which an optimizer step is skipped
    kl_cap_action: str | None = None  # what is skipped: stop_epochs (not the first of a step), skip, …
    entropy_target: float | None = None  # the same of entropy_coef
    entropy_step: float | None = None  # its change per step
    gamma: float | None = None
    lam: float | None = None
    whiten: bool | None = None
    value_coef: float | None = None  # weight of the value loss
    value_clip: float | None = None  # reward units; without one values are not clipped
    bootstraps: bool | None = None  # whether a cut end counts with the critic's value
    baseline: str | None = None  # of returns: step (the mean of all others), none
    truncated: str | None = None  # handling of cut rollouts: keep, mask, penalize
    truncated_penalty: float | None = None  # reward units
    overlong_tokens: int | None = None  # last tokens before the limit, with a growing penalty
    overlong_penalty: float | None = None  # penalty of the longest possible turn, reward units
    min_ratio: float | None = None  # tokens with a smaller ratio are left out of the policy loss
    most_ratio: float | None = None  # and those with a larger one
    row_drift: float | None = None  # nats; larger means of log sampler − log θ leave a row out, where A < 0
    entropy_share: float | None = None  # of a micro-batch's tokens: those of the highest entropies count
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
    logged_every: int | None = 1  # steps in the mean of a step's numbers
    tools: tuple[str, ...] | None = None  # tool names of the environment
    max_turns: int | None = None  # of a rollout
    reward_weights: Mapping[str, float] | None = None  # by the name of the part
    columns: Mapping[str, str] = field(default_factory=dict[str, str])  # a log's own names of numbers
    origin_source: str = ""  # loss_mask, sampled_mask: origins were made from the mask that they are to check


@dataclass(frozen=True, eq=False, kw_only=True)
class Step(StepTable):
    """A step, what its trainer declares, and what is kept of the steps before."""

    setup: Setup
    past: Sequence[StepNumbers] = ()  # the kept earlier steps, oldest first
    dropped: Mapping[str, Dropped] = field(default_factory=dict[str, Dropped])  # the others, by stage
    gain: StageGain | None = None  # of the stage's evaluations so far; None without two of the same tasks

    @classmethod
    def of(cls, table: StepTable, setup: Setup, history: History) -> "Step":
        """Return a table with what its trainer declares, and the steps before it."""
        known = {item.name: getattr(table, item.name) for item in fields(StepTable)}
        return cls(**known, setup=setup, past=history.past, dropped=history.dropped)

    @property
    def is_first_of_stage(self) -> bool:
        """Return whether it is the first step of its stage."""
        return not self.past_of_stage

    @cached_property
    def past_of_stage(self) -> list[StepNumbers]:
        """Return the kept earlier steps of the same stage: its first and last ones."""
        return [past for past in self.past if past.stage == self.stage]

    @cached_property
    def latest(self) -> list[StepNumbers]:
        """Return those directly before this step, without a gap."""
        return self.past_of_stage[FIRST if self.stage in self.dropped else 0 :]

    @property
    def previous(self) -> StepNumbers | None:
        """Return the step directly before this one, if it is of the same stage and kept."""
        return next((past for past in self.past_of_stage if past.step == self.step - 1), None)

    @property
    def metrics_of_stage(self) -> list[Mapping[str, float]]:
        """Return the metrics of every kept step of the stage, this one last."""
        return [*(past.metrics for past in self.past_of_stage), self.metrics]

    def known(self, *names: str) -> dict[int, float]:
        """Return a metric's finite values in the stage by the number of the step, from 1.

        Of several names the first that a step has counts.
        """
        numbers = [*(past.step for past in self.past_of_stage), self.step]
        values = (
            next((metrics[name] for name in names if name in metrics), math.nan)
            for metrics in self.metrics_of_stage
        )
        pairs = zip(numbers, values, strict=True)
        return {number + 1: value for number, value in pairs if math.isfinite(value)}

    @property
    def facts_of_stage(self) -> list[Facts]:
        """Return the facts of every kept step of the stage, this one last."""
        return [*(past.facts for past in self.past_of_stage), self.facts]

    def row_of(self, sample_id: str | None) -> int | None:
        """Return the index of a sample; None if the step does not have it."""
        return next((i for i, sample in enumerate(self.samples) if sample.sample_id == sample_id), None)

    @property
    def steps_before(self) -> int:
        """Return the number of earlier steps of the same stage."""
        return len(self.past_of_stage) + self.dropped.get(self.stage, Dropped()).steps

    @property
    def steps_of_run(self) -> int:
        """Return the number of earlier steps of all stages."""
        return len(self.past) + sum(each.steps for each in self.dropped.values())

    def rollouts(self) -> list[list[tuple[int, SampleFacts, slice]]]:
        """Return the samples of each rollout in the order of its turns, as ``slices`` yields them.

        A step may compute them in another order.
        """
        rollouts: dict[str, list[tuple[int, SampleFacts, slice]]] = {}
        for each in self.slices():
            rollouts.setdefault(each[1].rollout_id, []).append(each)
        return [sorted(parts, key=lambda each: each[1].number) for parts in rollouts.values()]

    def has(self, need: str) -> bool:
        """Return whether an input is there: a stream, `setup.…`, `facts.…`, `metrics.…`, `sample.…`, `a | b`.

        A number that is not finite is not there: no rule can be clean on it.
        """
        if " | " in need:
            return any(self.has(either) for either in need.split(" | "))
        kind, _, name = need.rpartition(".")
        match kind:
            case "setup":
                return getattr(self.setup, name) is not None
            case "sample":
                return any(_known(getattr(sample, name)) for sample in self.samples)
            case "metrics":
                return math.isfinite(self.metrics.get(name, math.nan))
            case "" if name == "gain":
                return self.gain is not None
            case "" if name == "origin" and self.setup.origin_source in ("loss_mask", "sampled_mask"):
                return False
            case "" if name == "sampled":
                return "origin" in self.tokens and self.setup.origin_source != "loss_mask"
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
        return any(either.removeprefix("metrics.") in self.metrics for either in need.split(" | "))


FOREIGN_METRICS = (
    *("kl/any", "kl/weighted_k3", "ratio/k1", "reward/any_std", "value/centred_explained_variance"),
)
"""Metrics of other trainers alone: see ``rule_inputs.INPUTS``."""


def is_input(need: str) -> bool:
    """Return whether a step can have an input; see ``Step.has``."""
    if " | " in need:
        return all(is_input(either) for either in need.split(" | "))
    kind, _, name = need.rpartition(".")
    match kind:
        case "setup":
            return name in Setup.__dataclass_fields__
        case "sample":
            return name in SampleFacts.__dataclass_fields__
        case "facts":
            return name in Facts.__annotations__
        case "metrics":
            return is_metric(name) or name in FOREIGN_METRICS
        case _:
            return not kind and name in ("gain", "sampled", *SAMPLE_STREAMS, *PASS_STREAMS)


def _known(value: Any) -> bool:
    """Return whether a property of a sample is known: finite, and not an empty text or list."""
    return math.isfinite(value) if isinstance(value, float) else value not in ("", (), None)


def changed_step(
    step: Step,
    *,
    samples: Mapping[int, Mapping[str, Any]] = {},
    setup: Mapping[str, Any] = {},
    facts: Mapping[str, Any] = {},
    metrics: Mapping[str, float] = {},
    past: Sequence[StepNumbers] | None = None,
    without: Sequence[str] = (),
    tokens: Mapping[str, Tensor] = {},
    **streams: Tensor,
) -> Step:
    """Return the step with other samples (by index), settings, facts, metrics or streams; without some.

    Streams are [N]; of passes they are those of each sample's last one, the only one that is kept.
    With another past the step comes after all of it.
    """
    known = {name: each for name, each in {**step.tokens, **tokens, **streams}.items() if name not in without}
    past = step.past if past is None else past
    return replace(
        step,
        step=max([step.step, *(each.step + 1 for each in past if each.stage == step.stage)]),
        samples=[replace(sample, **samples.get(index, {})) for index, sample in enumerate(step.samples)],
        setup=replace(step.setup, **setup),
        facts=Facts(**{name: x for name, x in {**step.facts, **facts}.items() if name not in without}),
        metrics={**step.metrics, **metrics},
        past=past,
        streams={name: each for name, each in known.items() if name not in PASS_STREAMS},
        passes=last_passes(step, step.optimizer_step_of_sample, known),
    )


def last_passes(step: Step, last_B: Tensor, tokens: Mapping[str, Tensor]) -> Passes:
    """Return one pass of each sample whose optimizer step is not −1, with these streams, [N]."""
    index_P = (last_B >= 0).nonzero()[:, 0]
    token_N = (last_B >= 0)[step.sample_of_token]
    return Passes(
        sample=index_P,
        optimizer_step=last_B[index_P],
        micro_batch=torch.zeros_like(index_P),
        rank=step.rank_of_sample[index_P].clamp(min=0),
        streams={name: tokens[name][token_N] for name in PASS_STREAMS if name in tokens},
    )
