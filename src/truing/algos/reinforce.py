"""REINFORCE: each token is pulled by what was earned from it on, less a baseline."""

from collections.abc import Sequence

import torch
from torch import Tensor

from truing.algos.base import Setting
from truing.algos.chains import Chains
from truing.algos.policy import policy_algorithm
from truing.ops.advantages import leave_one_out
from truing.ops.returns import discounted_returns, whiten
from truing.types import Sample


def credit(samples: Sequence[Sample], setting: Setting) -> list[Sample]:
    """An advantage per token, and the return that it was made from."""
    cfg, chains = setting.stage, Chains.of(samples, setting)
    returns_RT = discounted_returns(chains.reward_RT, chains.mask_RT, cfg.gamma)
    advantage_RT = returns_RT
    if cfg.baseline == "step":
        advantage_RT = returns_RT - mean_of_others(chains.reward_RT.sum(dim=1))[:, None]
    if cfg.whiten:
        advantage_RT = whiten(advantage_RT, chains.trained_RT)
    trained_RT = advantage_RT.masked_fill(~chains.trained_RT, torch.nan)
    return chains.written(samples, advantage=trained_RT, returns=returns_RT)


def mean_of_others(rewards_R: Tensor) -> Tensor:
    """The mean of all rewards but one's own: [R]."""
    return rewards_R - leave_one_out(rewards_R, torch.zeros(len(rewards_R), dtype=torch.long))


REINFORCE = policy_algorithm(credit)
