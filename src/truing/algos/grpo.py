"""Group-relative policy optimization and its variants: the baseline is the mean of the sampled group.

The table of objectives is ``OBJECTIVES`` in ops/losses.py.
"""

from collections.abc import Mapping, Sequence
from itertools import islice

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from truing.algos.base import StepConfig
from truing.algos.group_rewards import broadcast_advantages, rewards_and_groups, with_turn_advantages
from truing.algos.policy_algorithm import policy_algorithm
from truing.algos.trajectories import group_by_rollout, kl_cost
from truing.config import KlConfig
from truing.errors import RewardError
from truing.ops.advantages import group_advantages, turn_returns
from truing.types.sample import Sample


def compute_advantages(samples: Sequence[Sample], config: StepConfig) -> list[Sample]:
    """Return samples with one advantage per rollout, or one per turn, on the trained tokens."""
    cfg, rollouts = config.stage, group_by_rollout(samples)
    rewards_R, group_R = rewards_and_groups(rollouts, config)
    if cfg.advantage_per == "episode":
        return broadcast_advantages(
            samples, rollouts, group_advantages(rewards_R, group_R, cfg.advantage_scale)
        )
    returns_RK = turn_returns(rewards_R, _turn_rewards(rollouts, config.kl))
    each_KR = [group_advantages(return_R, group_R, cfg.advantage_scale) for return_R in returns_RK.T]
    advantage_RK = torch.stack(each_KR, dim=1).tolist()
    remaining = {
        rollout: iter(advantage_K) for rollout, advantage_K in zip(rollouts, advantage_RK, strict=True)
    }
    return [
        with_turn_advantages(sample, list(islice(remaining[sample.rollout_id], len(sample.turns))))
        for sample in samples
    ]


def _turn_rewards(rollouts: Mapping[str, Sequence[Sample]], kl: KlConfig) -> Tensor:
    """Return the reward of each turn less its KL penalty: [R, K]; 0 where a rollout has no such turn."""
    rows = []
    for rollout, parts in rollouts.items():
        row = torch.tensor([turn.reward for sample in parts for turn in sample.turns], dtype=torch.float64)
        if row.isnan().any():
            raise missing_turn_rewards(f"rollout {rollout}")
        costs = [(kl_cost(sample, kl), sample.turns) for sample in parts]
        penalties = [float(cost_T[turn.start : turn.end].sum()) for cost_T, turns in costs for turn in turns]
        rows.append(row - torch.tensor(penalties, dtype=torch.float64))
    return pad_sequence(rows, batch_first=True)


def missing_turn_rewards(where: str) -> RewardError:
    """Return the error for rewards without a share per turn."""
    return RewardError(
        "an advantage per turn needs rewards of turns",
        got=f"none for {where}",
        expected="a reward function that returns truing.PerTurn",
        remedy='judge each turn, or set grpo.advantage_per = "episode"',
    )


GRPO = policy_algorithm(compute_advantages)
