"""Rollouts as trajectories: the reward of each SAMPLED token."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from truing.algos.base import StepConfig
from truing.config import GatesConfig, KlConfig
from truing.ops.kl import kl
from truing.ops.overlong_penalty import overlong_fraction
from truing.ops.returns import whiten
from truing.types.sample import Sample

WHITEN_EPS = 1e-4
"""Reward units, as for groups: far above the float32 rounding of equal log-probabilities."""


@dataclass(frozen=True, eq=False)
class Trajectories:
    """R rollouts as rows of T tokens: the samples of each concatenated, padded on the right."""

    rollouts: list[list[Sample]]
    mask_RT: Tensor
    """bool, SAMPLED tokens, including those excluded from training."""
    trained_RT: Tensor
    """bool, those of them under policy terms."""
    reward_RT: Tensor
    """float64, the reward of each token; 0 outside ``mask_RT``."""

    @classmethod
    def from_samples(cls, samples: Sequence[Sample], config: StepConfig) -> "Trajectories":
        """Return the trajectories of all rollouts in ``samples``."""
        rollouts = list(group_by_rollout(samples).values())
        return cls(
            rollouts,
            mask_RT=_join(rollouts, "value_mask"),
            trained_RT=_join(rollouts, "policy_mask"),
            reward_RT=pad_sequence([token_rewards(parts, config) for parts in rollouts], batch_first=True),
        )

    def stream(self, name: str) -> Tensor:
        """Return a stream of the samples: [R, T], 0 in the padding."""
        return _join(self.rollouts, name)

    def on_trained_tokens(self, advantage_RT: Tensor, *, whitened: bool) -> Tensor:
        """Return advantages at trained tokens, NaN elsewhere; optionally with mean 0 and deviation 1.

        A single token has no deviation and is unchanged. ``WHITEN_EPS`` keeps rounding from becoming signal.
        """
        if whitened and self.trained_RT.sum() > 1:
            advantage_RT = whiten(advantage_RT, self.trained_RT, eps=WHITEN_EPS)
        return advantage_RT.masked_fill(~self.trained_RT, torch.nan)

    def with_streams(self, samples: Sequence[Sample], **streams_RT: Tensor) -> list[Sample]:
        """Return the samples in their order, each with its part of streams [R, T]."""
        by_id = {}
        for row, parts in enumerate(self.rollouts):
            for start, sample in zip(_starts(parts), parts, strict=False):
                part = {name: stream[row, start : start + len(sample)] for name, stream in streams_RT.items()}
                by_id[sample.sample_id] = replace(sample, **{name: x.float() for name, x in part.items()})
        return [by_id[sample.sample_id] for sample in samples]


def group_by_rollout(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    """Return the samples of each rollout, in order; a rollout of many turns may have several."""
    rollouts: dict[str, list[Sample]] = {}
    for sample in samples:
        rollouts.setdefault(sample.rollout_id, []).append(sample)
    return rollouts


def kl_cost(sample: Sample, cfg: KlConfig) -> Tensor:
    """Return the KL penalty on the reward of each token: [T] float64.

    The KL is between the old policy of the step and the reference; a constant.
    """
    cost_T = torch.zeros(len(sample), dtype=torch.float64)
    if cfg.coef > 0 and cfg.where == "reward":
        mask_T = sample.kl_mask
        old, ref = (stream[mask_T].double() for stream in (sample.old_logprob, sample.ref_logprob))
        cost_T[mask_T] = cfg.coef * kl(old, ref, cfg.estimator)
    return cost_T


def shaped_reward(parts: Sequence[Sample], gates: GatesConfig) -> float:
    """Return the reward of a rollout less its penalties for truncation and long turns."""
    reward = parts[0].reward
    if gates.truncated == "penalize" and parts[-1].truncated:
        reward -= gates.truncated_penalty
    if gates.overlong_tokens:
        longest = max(turn.end - turn.start for sample in parts for turn in sample.turns)
        limit = parts[0].sampling_params.max_new_tokens
        reward -= gates.overlong_penalty * overlong_fraction(longest, limit, gates.overlong_tokens)
    return reward


def token_rewards(parts: Sequence[Sample], config: StepConfig) -> Tensor:
    """Return the reward of each token of a rollout, its samples concatenated: [T] float64.

    The reward of a turn is at its last SAMPLED token (or the last one before, or else the first), the rest
    of the rollout's reward at the last SAMPLED token. Without any, all rewards are 0.
    """
    reward_T = -torch.cat([kl_cost(sample, config.kl) for sample in parts])
    indices = torch.cat([sample.value_mask for sample in parts]).nonzero()[:, 0]
    if not len(indices):
        return reward_T
    remaining = shaped_reward(parts, config.gates)
    for start, sample in zip(_starts(parts), parts, strict=False):
        for turn in sample.turns:
            if not math.isnan(turn.reward):  # turns are judged
                last = int(torch.searchsorted(indices, start + turn.end)) - 1
                reward_T[indices[max(last, 0)]] += turn.reward
                remaining -= turn.reward
    reward_T[indices[-1]] += remaining
    return reward_T


def _join(rollouts: Sequence[Sequence[Sample]], name: str) -> Tensor:
    """Return a stream of samples by rollout: [R, T]."""
    rows = [torch.cat([getattr(sample, name) for sample in parts]) for parts in rollouts]
    return pad_sequence(rows, batch_first=True)


def _starts(parts: Sequence[Sample]) -> list[int]:
    """Return the start of each sample of a rollout, and the end of the last."""
    return list(accumulate((len(sample) for sample in parts), initial=0))
