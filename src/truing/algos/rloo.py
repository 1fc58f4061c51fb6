"""REINFORCE leave-one-out: the baseline is the mean of the prompt's other answers, so it is unbiased."""

from collections.abc import Sequence

from truing.algos.base import StepConfig
from truing.algos.group_rewards import broadcast_advantages, rewards_and_groups
from truing.algos.policy_algorithm import policy_algorithm
from truing.algos.trajectories import group_by_rollout
from truing.ops.advantages import leave_one_out
from truing.types.sample import Sample


def compute_advantages(samples: Sequence[Sample], config: StepConfig) -> list[Sample]:
    """Return samples with one advantage per rollout, on the trained tokens."""
    rollouts = group_by_rollout(samples)
    return broadcast_advantages(samples, rollouts, leave_one_out(*rewards_and_groups(rollouts, config)))


RLOO = policy_algorithm(compute_advantages)
