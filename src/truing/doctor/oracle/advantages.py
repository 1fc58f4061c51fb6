"""A second computation of advantages, by token, from the rewards, groups and values of a step."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from truing.doctor.evidence import Step
from truing.doctor.oracle.credit import gae, group_advantage, mean, sample_std
from truing.doctor.oracle.rewards import RolloutReward, rollout_rewards

EPS = 1e-4
"""Default epsilon of the advantage denominator, reward units."""


def expected_group_advantages(step: Step) -> Tensor:
    """Return advantages within groups: [N] float64, NaN for rows without a group or a reward."""
    groups: dict[str, list[RolloutReward]] = defaultdict(list)
    for each in rollout_rewards(step):
        if not math.isnan(each.total_reward):
            groups[each.group_id].append(each)
    batch_rewards = [each for group in groups.values() for each in group]
    sizes = {name: len(group) for name, group in groups.items()}
    least = 2  # Truing leaves failed rollouts out of their group
    if step.setup.trainer != "truing":  # a step may have a part of a group, and rows without a reward
        sizes = Counter(name for name, _ in {(row.group_id, row.rollout_id) for row in step.samples})
        least = max(2, step.setup.group_size or 2)
    whole = [group for name, group in groups.items() if sizes[name] >= least]
    if step.setup.advantage_per == "turn":
        return _turn_advantages(step, whole, batch_rewards)
    advantages = {
        each.rollout_id: _advantage(
            step, each.total_reward, [a.total_reward for a in group], [a.total_reward for a in batch_rewards]
        )
        for group in whole
        for each in group
    }
    expected = [
        advantages.get(row.rollout_id, math.nan) if kept else math.nan
        for row, kept in zip(step.samples, step.kept, strict=True)
    ]
    return torch.tensor(expected, dtype=torch.float64)[step.sample_of_token]


def _turn_advantages(
    step: Step, groups: Sequence[Sequence[RolloutReward]], batch_rewards: Sequence[RolloutReward]
) -> Tensor:
    """Return advantages by turn from the rewards still to come; ended rollouts stay in the baseline."""
    expected_N = torch.full((len(step.sample_of_token),), math.nan, dtype=torch.float64)
    for group in groups:
        for each in group:
            for k, (span, _) in enumerate(each.turns):
                others = [_reward_to_go(a, k) for a in group], [_reward_to_go(a, k) for a in batch_rewards]
                expected_N[span.start : span.stop] = _advantage(step, _reward_to_go(each, k), *others)
    return expected_N


def _reward_to_go(rollout: RolloutReward, k: int) -> float:
    """Return a rollout's reward without its first ``k`` turns."""
    return rollout.total_reward - math.fsum(share for _, share in rollout.turns[:k])


def _advantage(step: Step, reward: float, group: Sequence[float], batch_rewards: Sequence[float]) -> float:
    """Return the advantage by the declared formula."""
    assert step.setup.advantage is not None
    return group_advantage(
        reward, group, batch_rewards, step.setup.advantage, step.setup.advantage_eps or 0.0
    )


class Trajectory(NamedTuple):
    """The chosen tokens of a rollout, and the reward of each."""

    tokens: list[int]  # places among all N
    values: list[float]
    rewards: list[float]
    bootstrap_value: float  # the critic's value after a cut end; NaN without one
    total_reward: float  # of the whole rollout


def trajectories_of(step: Step) -> list[Trajectory]:
    """Return one for each trained rollout with a reward, in the order of rows."""
    value_N = step.tokens.get("value", torch.zeros(len(step.sample_of_token)))
    return [
        Trajectory(
            each.tokens, value_N[each.tokens].tolist(), each.rewards, each.bootstrap_value, each.total_reward
        )
        for each in rollout_rewards(step)
        if each.tokens
    ]


def expected_reinforce_advantages(
    step: Step, chains: Sequence[Trajectory], gamma: float | None = None
) -> tuple[Tensor, Tensor]:
    """Return returns and advantages of REINFORCE, both [N] float64, from each token on.

    With a declared baseline, the mean of all other rollouts' rewards is subtracted.
    """
    without = [chain._replace(values=[0.0] * len(chain.tokens)) for chain in chains]
    settings = {"bootstrapped": False, "whiten": False, "gamma": gamma, "lam": 1.0}
    returns_N, advantage_N = expected_gae(step, without, **settings)
    if step.setup.baseline == "step":
        total = math.fsum(chain.total_reward for chain in chains)
        for chain in chains:
            others = (
                (total - chain.total_reward) / (len(chains) - 1) if len(chains) > 1 else chain.total_reward
            )
            advantage_N[chain.tokens] -= others
    return returns_N, whitened(step, advantage_N) if step.setup.whiten else advantage_N


def expected_gae(
    step: Step,
    chains: Sequence[Trajectory],
    *,
    bootstrapped: bool,
    whiten: bool,
    gamma: float | None = None,
    lam: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return returns and advantages of GAE, both [N] float64 and NaN elsewhere."""
    gamma, lam = step.setup.gamma if gamma is None else gamma, step.setup.lam if lam is None else lam
    assert gamma is not None
    assert lam is not None
    returns, advantages = [math.nan] * len(step.sample_of_token), [math.nan] * len(step.sample_of_token)
    for chain in chains:
        last_value = chain.bootstrap_value if bootstrapped and not math.isnan(chain.bootstrap_value) else 0.0
        estimates = gae(chain.rewards, chain.values, last_value, gamma, lam)
        for token, advantage, value in zip(chain.tokens, *estimates, strict=True):
            advantages[token], returns[token] = advantage, value
    returns_N, advantage_N = (torch.tensor(each, dtype=torch.float64) for each in (returns, advantages))
    return returns_N, whitened(step, advantage_N) if whiten else advantage_N


def whitened(step: Step, advantage_N: Tensor) -> Tensor:
    """Return advantages with mean 0 and deviation 1 over trained tokens; a single one is unchanged."""
    known = [a for a in advantage_N[step.tokens["policy_mask"]].tolist() if not math.isnan(a)]
    if len(known) < 2:
        return advantage_N
    if min(known) == max(known):
        return torch.where(advantage_N.isnan(), math.nan, 0.0)
    return (advantage_N - mean(known)) / (sample_std(known) + (step.setup.advantage_eps or EPS))
