"""REINFORCE: the advantage of a token is the return that follows it, less a baseline."""

from collections.abc import Sequence

import torch
from torch import Tensor

from truing.algos.base import StepConfig
from truing.algos.group_rewards import rewards_and_groups
from truing.algos.policy_algorithm import policy_algorithm
from truing.algos.trajectories import Trajectories, group_by_rollout
from truing.ops.advantages import leave_one_out
from truing.ops.returns import discounted_returns
from truing.types.sample import Sample


def compute_advantages(samples: Sequence[Sample], config: StepConfig) -> list[Sample]:
    """Return samples with an advantage and a return per token."""
    cfg, trajectories = config.stage, Trajectories.from_samples(samples, config)
    returns_RT = discounted_returns(trajectories.reward_RT, trajectories.mask_RT, cfg.gamma)
    advantage_RT = returns_RT
    if cfg.baseline == "step":
        rewards_R, _ = rewards_and_groups(group_by_rollout(samples), config)
        advantage_RT = returns_RT - mean_of_others(rewards_R)[:, None]
    advantage_RT = trajectories.on_trained_tokens(advantage_RT, whitened=cfg.whiten)
    return trajectories.with_streams(samples, advantage=advantage_RT, returns=returns_RT)


def mean_of_others(rewards_R: Tensor) -> Tensor:
    """Return the mean of the other rollouts' rewards, [R]; a single rollout's own reward, for advantage 0."""
    if len(rewards_R) == 1:
        return rewards_R
    return rewards_R - leave_one_out(rewards_R, torch.zeros(len(rewards_R), dtype=torch.long))


REINFORCE = policy_algorithm(compute_advantages)
