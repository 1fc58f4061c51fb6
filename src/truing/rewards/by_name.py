"""Reward functions that a caller passes, by name."""

from collections.abc import Mapping, Sequence

from truing.errors import RewardError
from truing.rewards.grade import RewardFn, Rewards


def rewards_by_name(rewards: Sequence[RewardFn] | Rewards) -> Rewards:
    """Return rewards by name; functions with equal names, or none, need a mapping."""
    if isinstance(rewards, Mapping):
        return rewards
    if callable(rewards):
        rewards = [rewards]
    names = [getattr(function, "__name__", "") for function in rewards]
    if "" in names or len(set(names)) < len(names):
        raise RewardError(
            "each reward function needs a name of its own",
            got=names,
            remedy='pass a mapping: {"exact": (function, 1.0), …}',
        )
    return {name: (function, 1.0) for name, function in zip(names, rewards, strict=True)}
