"""Rollouts as chains of decisions: what each token that the policy chose earned."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from truing.algos.base import UpdateConfig
from truing.config import GatesConfig, KlConfig
from truing.ops.kl import kl
from truing.ops.overlong_penalty import overlong_fraction
from truing.ops.returns import whiten
from truing.types.sample import Sample

WHITEN_EPS = 1e-4
"""Reward units, as for groups: what float32 leaves of equal log-probabilities is far below it."""


@dataclass(frozen=True, eq=False)
class Trajectories:
    """R rollouts side by side, the samples of each one after the other: T tokens, padded on the right."""

    rollouts: list[list[Sample]]
    mask_RT: Tensor
    """bool, the tokens that the policy chose; those that a mask excludes from training stay in the chain."""
    trained_RT: Tensor
    """bool, the part of them that is under policy terms."""
    reward_RT: Tensor
    """float64, what each earned; 0 off the chain."""

    @classmethod
    def from_samples(cls, samples: Sequence[Sample], config: UpdateConfig) -> "Trajectories":
        """The chains of all rollouts of which there are samples."""
        rollouts = list(group_by_rollout(samples).values())
        return cls(
            rollouts,
            mask_RT=_joined(rollouts, "value_mask"),
            trained_RT=_joined(rollouts, "policy_mask"),
            reward_RT=pad_sequence([token_rewards(parts, config) for parts in rollouts], batch_first=True),
        )

    def stream(self, name: str) -> Tensor:
        """A stream of the samples: [R, T], 0 in the padding."""
        return _joined(self.rollouts, name)

    def on_trained_tokens(self, advantage_RT: Tensor, *, whitened: bool) -> Tensor:
        """Advantages of trained tokens, NaN elsewhere; at will with mean 0 and deviation 1 over all of them.

        A single token has no deviation and stays as it is. Deviations of rounding are not made into signal.
        """
        if whitened and self.trained_RT.sum() > 1:
            advantage_RT = whiten(advantage_RT, self.trained_RT, eps=WHITEN_EPS)
        return advantage_RT.masked_fill(~self.trained_RT, torch.nan)

    def with_streams(self, samples: Sequence[Sample], **streams_RT: Tensor) -> list[Sample]:
        """The samples in their order, each with its part of streams [R, T]."""
        made = {}
        for row, parts in enumerate(self.rollouts):
            for start, sample in zip(_starts(parts), parts, strict=False):
                part = {name: stream[row, start : start + len(sample)] for name, stream in streams_RT.items()}
                made[sample.sample_id] = replace(sample, **{name: x.float() for name, x in part.items()})
        return [made[sample.sample_id] for sample in samples]


def group_by_rollout(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    """The samples of each rollout, in order: one of many turns may be many samples."""
    rollouts: dict[str, list[Sample]] = {}
    for sample in samples:
        rollouts.setdefault(sample.rollout_id, []).append(sample)
    return rollouts


def kl_cost(sample: Sample, cfg: KlConfig) -> Tensor:
    """What the KL to the reference takes off the reward of each token: [T] float64, 0 where nothing.

    Between the policy that drew the tokens and the reference; a constant.
    """
    cost_T = torch.zeros(len(sample), dtype=torch.float64)
    if cfg.coef > 0 and cfg.where == "reward":
        chosen_T = sample.kl_mask
        drawn, ref = (stream[chosen_T].double() for stream in (sample.old_logprob, sample.ref_logprob))
        cost_T[chosen_T] = cfg.coef * kl(drawn, ref, cfg.estimator)
    return cost_T


def shaped_reward(parts: Sequence[Sample], gates: GatesConfig) -> float:
    """The reward of a rollout as it earns credit: less what being cut, or a long turn, costs."""
    reward = parts[0].reward
    if gates.truncated == "penalize" and parts[-1].truncated:
        reward -= gates.truncated_penalty
    if gates.overlong_tokens:
        longest = max(turn.end - turn.start for sample in parts for turn in sample.turns)
        limit = parts[0].sampling_params.max_new_tokens
        reward -= gates.overlong_penalty * overlong_fraction(longest, limit, gates.overlong_tokens)
    return reward


def token_rewards(parts: Sequence[Sample], config: UpdateConfig) -> Tensor:
    """What each token of a rollout earned, its samples one after the other: [T] float64.

    The share of a turn is earned by the last token in it that the policy chose (or the last one
    before, or else the first), the rest of the reward by the last of all. Where it chose nothing, all is 0.
    """
    reward_T = -torch.cat([kl_cost(sample, config.kl) for sample in parts])
    chosen = torch.cat([sample.value_mask for sample in parts]).nonzero()[:, 0]
    if not len(chosen):
        return reward_T
    left = shaped_reward(parts, config.gates)
    for start, sample in zip(_starts(parts), parts, strict=False):
        for turn in sample.turns:
            if not math.isnan(turn.reward):  # turns are judged
                last = int(torch.searchsorted(chosen, start + turn.end)) - 1
                reward_T[chosen[max(last, 0)]] += turn.reward
                left -= turn.reward
    reward_T[chosen[-1]] += left
    return reward_T


def _joined(rollouts: Sequence[Sequence[Sample]], name: str) -> Tensor:
    """A stream of samples by rollout: [R, T]."""
    rows = [torch.cat([getattr(sample, name) for sample in parts]) for parts in rollouts]
    return pad_sequence(rows, batch_first=True)


def _starts(parts: Sequence[Sample]) -> list[int]:
    """Where the samples of a rollout begin, and where the last one ends."""
    return list(accumulate((len(sample) for sample in parts), initial=0))
