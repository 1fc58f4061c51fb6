"""Rewards of rollouts by group, and advantages per rollout or turn on the trained tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from truing.algos.base import StepConfig
from truing.algos.trajectories import kl_cost, shaped_reward
from truing.types.sample import Sample


def rewards_and_groups(rollouts: Mapping[str, Sequence[Sample]], config: StepConfig) -> tuple[Tensor, Tensor]:
    """Return each rollout's reward less its KL penalty, and the number of its group: two [R]."""
    firsts = [parts[0] for parts in rollouts.values()]
    number = {group: i for i, group in enumerate(dict.fromkeys(sample.group_id for sample in firsts))}
    costs = [sum(float(kl_cost(sample, config.kl).sum()) for sample in parts) for parts in rollouts.values()]
    shaped = [shaped_reward(parts, config.gates) for parts in rollouts.values()]
    rewards = [reward - cost for reward, cost in zip(shaped, costs, strict=True)]
    return (
        torch.tensor(rewards, dtype=torch.float64),
        torch.tensor([number[sample.group_id] for sample in firsts]),
    )


def broadcast_advantages(
    samples: Sequence[Sample], rollouts: Mapping[str, Sequence[Sample]], advantage_R: Tensor
) -> list[Sample]:
    """Return samples with the advantage of each rollout on all of its trained tokens."""
    by_rollout = dict(zip(rollouts, advantage_R.tolist(), strict=True))
    return [
        with_turn_advantages(sample, [by_rollout[sample.rollout_id]] * len(sample.turns))
        for sample in samples
    ]


def with_turn_advantages(sample: Sample, advantages: Sequence[float]) -> Sample:
    """Return a sample with the advantage of each of its turns on the trained tokens."""
    advantage_T = torch.full(sample.policy_mask.shape, torch.nan)
    for turn, advantage in zip(sample.turns, advantages, strict=True):
        advantage_T[turn.start : turn.end] = advantage
    return replace(sample, advantage=advantage_T.masked_fill(~sample.policy_mask, torch.nan))
