"""Advantages: baselines, deviations, and what a group is."""

from contextlib import nullcontext

import torch

from dev.faults.fault import Fault, patched
from truing.utils.rng import seed_of


def _baseline_left_out(real):
    def mean_of_others(rewards_R):
        return 0 * rewards_R

    return mean_of_others


BASELINE_LEFT_OUT = Fault(
    name="baseline-left-out",
    numbers=(),
    what="returns have no baseline, although one is declared",
    plant=lambda: patched("truing.algos.reinforce:mean_of_others", _baseline_left_out),
    expected=("ADV010",),
    changes={
        "stages": ["sft", "reinforce"],
        "reinforce": {"steps": 3, "prompts_per_step": 16, "learning_rate": 1e-3},
    },
)


def _deviation_of_batch(real):
    return lambda rewards, group, scale, eps=1e-4: real(rewards, group, "batch", eps)


DEVIATION_OF_BATCH = Fault(
    name="deviation-of-batch",
    numbers=(41,),
    what="the deviation is of the batch, not of the group",
    plant=lambda: patched("truing.algos.grpo:group_advantages", _deviation_of_batch),
    expected=("ADV001",),
)


def _ended_bootstrapped(real):
    def gae(rewards, values, mask, last, *args, **kwargs):
        return real(rewards, values, mask, torch.ones_like(last), *args, **kwargs)

    return gae


ENDED_BOOTSTRAPPED = Fault(
    name="ended-bootstrapped",
    numbers=(43,),
    what="GAE bootstraps across the end of an episode",
    plant=lambda: patched("truing.algos.ppo:gae", _ended_bootstrapped),
    expected=("ADV006",),
    changes={
        "stages": ["sft", "ppo"],
        "sft.steps": 30,
        "ppo": {"steps": 3, "prompts_per_step": 16, "learning_rate": 0.001},
    },
)


def _episode_whitened(real):
    def whiten(advantage, mask, eps=1e-8):
        whitened = torch.full_like(advantage, torch.nan)
        for row, on in enumerate(mask):
            inside = advantage[row, on]
            spread = inside.std() if len(inside) > 1 else inside.new_ones(())
            whitened[row, on] = (inside - inside.mean()) / (spread + eps)
        return whitened

    return whiten


EPISODE_WHITENED = Fault(
    name="episode-whitened",
    numbers=(42,),
    what="GAE is normalised within each rollout",
    plant=lambda: patched("truing.algos.trajectories:whiten", _episode_whitened),
    expected=("ADV005", "ADV006"),
    changes={
        "stages": ["sft", "ppo"],
        "sft.steps": 30,
        "ppo": {"steps": 3, "prompts_per_step": 16, "learning_rate": 0.001},
    },
)


def _equal_rewards_amplified(real):
    def advantages(rewards, group, scale, eps=1e-8):
        advantage = torch.zeros(len(rewards))
        for each in group.unique():
            r = rewards[group == each].float()
            centred = r - r.cumsum(0)[-1] / len(r)
            advantage[group == each] = centred / (r.std() + 1e-8)
        return advantage

    return advantages


def _same(rollout, task):
    return 0.9


EQUAL_REWARDS_AMPLIFIED = Fault(
    name="equal-rewards-amplified",
    numbers=(38,),
    what="groups of equal reward have advantages of rounding",
    plant=lambda: patched("truing.algos.grpo:group_advantages", _equal_rewards_amplified),
    expected=("ADV003", "ADV001"),
    changes={"grpo.group_size": 6},
    reward=_same,
)


def _groups_mixed(real):
    def groups_of(rollouts, setting):
        rewards, group = real(rollouts, setting)
        return rewards, group.roll(1)

    return groups_of


GROUPS_MIXED = Fault(
    name="groups-mixed",
    numbers=(40,),
    what="baselines come from rollouts of another prompt",
    plant=lambda: patched("truing.algos.grpo:rewards_and_groups", _groups_mixed),
    expected=("ADV001", "ADV008", "ADV009"),
)


def _kl_in_reward_free(real):
    def kl_cost(sample, cfg):
        return torch.zeros_like(real(sample, cfg))

    return kl_cost


KL_IN_REWARD_FREE = Fault(
    name="kl-in-reward-free",
    numbers=(),
    what="the declared KL in the reward costs nothing",
    plant=lambda: patched("truing.algos.trajectories:kl_cost", _kl_in_reward_free),
    expected=("ADV006",),
    changes={
        "stages": ["sft", "ppo"],
        "sft.steps": 20,
        "ppo": {"steps": 3, "prompts_per_step": 16, "learning_rate": 3e-3},
        "kl.coef": 0.1,
        "kl.where": "reward",
        "kl.estimator": "k1",
    },
)


def _no_baseline(real):
    return lambda rewards, group, scale, eps=1e-4: rewards


NO_BASELINE = Fault(
    name="no-baseline",
    numbers=(41,),
    what="there is no baseline: the reward is the advantage",
    plant=lambda: patched("truing.algos.grpo:group_advantages", _no_baseline),
    expected=("ADV001", "ADV009"),
)


def nearly_alike(rollout, task):
    """Return the value of the task plus noise of the grader."""
    worth = seed_of(task.task_id) % 2
    return worth + 1e-4 * (seed_of(rollout.rollout_id) % 7)


NOISE_PROMOTED = Fault(
    name="noise-promoted",
    numbers=(39,),
    what="rewards that differ by noise alone have full advantages",
    plant=nullcontext,
    expected=("ADV007",),
    changes={"grpo.prompts_per_step": 8},
    reward=nearly_alike,
)


def _penalty_left_out(real):
    def shaped_reward(parts, gates):
        return parts[0].reward

    return shaped_reward


PENALTY_LEFT_OUT = Fault(
    name="penalty-left-out",
    numbers=(),
    what="the declared penalty for cut rollouts is not applied",
    plant=lambda: patched("truing.algos.group_rewards:shaped_reward", _penalty_left_out),
    expected=("ADV001",),
    changes={"gates.truncated": "penalize", "sft.steps": 10},
)


def _population_deviation(real):
    def advantages(rewards, group, scale, eps=1e-4):
        size = len(rewards) // len(group.unique())
        return real(rewards, group, scale, eps) * (size / (size - 1)) ** 0.5

    return advantages


POPULATION_DEVIATION = Fault(
    name="population-deviation",
    numbers=(41,),
    what="the deviation is of the population, n and not n − 1",
    plant=lambda: patched("truing.algos.grpo:group_advantages", _population_deviation),
    expected=("ADV001", "ADV002"),
)


def nothing(rollout, task):
    """Return 1 for a tag that no prompt requests."""
    return 0.0


VERIFIER_DEAD = Fault(
    name="verifier-dead",
    numbers=(37, 44),
    what="every answer earns nothing",
    plant=nullcontext,
    expected=("ADV004", "RWD006"),
    changes={"sft.steps": 30, "grpo.steps": 12},
    reward=nothing,
)
