"""REINFORCE leave-one-out: the other answers to a prompt are the baseline, so no answer biases its own."""

from collections.abc import Sequence

from truing.algos.base import Setting
from truing.algos.group_rewards import rewards_and_groups, spread
from truing.algos.policy_algorithm import policy_algorithm
from truing.algos.trajectories import by_rollout
from truing.ops.advantages import leave_one_out
from truing.types.sample import Sample


def credit(samples: Sequence[Sample], setting: Setting) -> list[Sample]:
    """One advantage per rollout, written on the trained tokens."""
    rollouts = by_rollout(samples)
    return spread(samples, rollouts, leave_one_out(*rewards_and_groups(rollouts, setting)))


RLOO = policy_algorithm(credit)
