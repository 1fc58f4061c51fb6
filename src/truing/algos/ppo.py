"""Proximal policy optimization: advantages from rewards and a critic's values; the critic learns returns."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from truing.algos.base import LossTerm, StepConfig
from truing.algos.loss_terms import value_term
from truing.algos.policy_algorithm import policy_algorithm, policy_terms
from truing.algos.trajectories import Trajectories
from truing.config import PpoConfig
from truing.ops.returns import gae
from truing.types.sample import Sample


def compute_advantages(samples: Sequence[Sample], config: StepConfig) -> list[Sample]:
    """Return samples with an advantage and a return per token.

    Returns use advantages before whitening. Whitening is over the whole step: within a trajectory it would
    erase the sign of the outcome.
    """
    cfg, trajectories = config.stage, Trajectories.from_samples(samples, config)
    reward_RT, mask_RT = trajectories.reward_RT, trajectories.mask_RT
    value_RT, bootstrap_R = trajectories.stream("value").double(), _bootstrap_values(trajectories, cfg)
    advantage_RT, returns_RT = gae(reward_RT, value_RT, mask_RT, bootstrap_R, cfg.gamma, cfg.lam)
    advantage_RT = trajectories.on_trained_tokens(advantage_RT, whitened=cfg.whiten)
    return trajectories.with_streams(samples, advantage=advantage_RT, returns=returns_RT)


def _bootstrap_values(trajectories: Trajectories, cfg: PpoConfig) -> Tensor:
    """Return the value after the last token, [R]: 0 where the episode ended."""
    last_samples = [parts[-1] for parts in trajectories.rollouts]
    bootstrapped = [sample.truncated and cfg.truncation == "bootstrap" for sample in last_samples]
    values = [
        sample.bootstrap_value if on else 0.0 for sample, on in zip(last_samples, bootstrapped, strict=True)
    ]
    return torch.tensor(values, dtype=torch.float64)


def terms(config: StepConfig) -> tuple[LossTerm, ...]:
    """Return the terms of all policy algorithms, and the critic's."""
    return (*policy_terms(config), value_term(config.stage.value_coef, config.stage.value_clip))


PPO = replace(policy_algorithm(compute_advantages), terms=terms, critic=lambda cfg: cfg.critic)
